// SPDX-License-Identifier: Apache-2.0
// The filters of lists and of other iterable values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "engine/text/jinja/filters.h"
#include "engine/text/jinja/library.h"

namespace baton::jinja {
namespace {

/// Returns value.a.b or value.0 for the parameter "attribute" of filters.
Value by_path(const Value& value, const Value& path, Budget& budget) {
  if (!path.is_string()) return element_of(value, path, budget);
  budget.spend_bytes(2 * path.text().size());
  Value out = value;
  std::string_view rest = path.text();
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = error == std::errc() && end == part.data() + part.size() && index >= 0;
    out = element_of(out, number ? Value(index) : Value(part), budget);
    if (dot == std::string_view::npos) return out;
    rest.remove_prefix(dot + 1);
  }
}

Arguments without_first(const Arguments& arguments, std::size_t count) {
  Arguments out = arguments;
  out.positional.erase(out.positional.begin(),
                       out.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, out.positional.size())));
  return out;
}

Value generator(Values items) { return Value::sequence(SequenceKind::generator, std::move(items)); }

Value count(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("length", arguments, {});
  return static_cast<std::int64_t>(length(value, budget));
}

Value list(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("list", arguments, {});
  return Value::list(elements(value, budget));
}

Value first(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("first", arguments, {});
  const Values items = elements(value, budget);
  return items.empty() ? Value::undefined("there is no first item") : items.front();
}

Value last(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("last", arguments, {});
  length(value, budget);  // fails for a generator, as in Jinja
  const Values items = elements(value, budget);
  return items.empty() ? Value::undefined("there is no last item") : items.back();
}

Value join(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("join", arguments, {"d", "attribute"});
  const std::string separator = given[0] ? to_text(*given[0], budget) : "";
  std::string out;
  bool is_first = true;
  for (const Value& item : elements(value, budget)) {
    if (!is_first) out += separator;
    is_first = false;
    budget.spend_bytes(separator.size());
    out += to_text(given.given(1) ? by_path(item, *given[1], budget) : item, budget);
    if (out.size() > kMaxStringBytes) throw Fault("a string becomes too long");
  }
  return out;
}

Value reverse(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("reverse", arguments, {});
  Values items = elements(value, budget);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return generator(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.text();
  return out;
}

Value items(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("items", arguments, {});
  Values out;
  if (!value.is_undefined() && !value.as_dict())
    throw Fault(fmt::format("items needs a dict, not a {}", type_name(value)));
  if (const Dict* dict = value.as_dict()) {
    budget.spend(dict->items.size());
    for (const auto& [key, item] : dict->items) out.push_back(Value::sequence(SequenceKind::tuple, {key, item}));
  }
  return generator(std::move(out));
}

/// Returns the value that sorting and case-insensitive comparison use.
Value folded(const Value& value, Budget& budget) {
  return value.is_string() ? Value(lower(value.text(), budget)) : value;
}

void sort_by(Values& items, const Value* path, bool with_case, bool backwards, Budget& budget) {
  std::vector<std::pair<Value, Value>> keyed;  // key, item
  for (Value& item : items) {
    const Value key = path ? by_path(item, *path, budget) : item;
    keyed.emplace_back(with_case ? key : folded(key, budget), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return backwards ? compare(b.first, a.first, budget) < 0 : compare(a.first, b.first, budget) < 0;
  });
  for (std::size_t i = 0; i < items.size(); ++i) items[i] = std::move(keyed[i].second);
}

Value sort(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  Values out = elements(value, budget);
  sort_by(out, given.given(2), given.flag(1, false), given.flag(0, false), budget);
  return Value::list(std::move(out));
}

Value dictsort(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const Value by = given[1] ? *given[1] : Value("key");
  if (!value.as_dict()) throw Fault("dictsort needs a dict");
  if (!by.is_string() || (by.text() != "key" && by.text() != "value")) throw Fault("dictsort is by key or value");
  Values out;
  budget.spend(2 * value.as_dict()->items.size());
  for (const auto& [key, item] : value.as_dict()->items)
    out.push_back(Value::sequence(SequenceKind::tuple, {key, item}));
  const Value path(std::int64_t{by.text() == "key" ? 0 : 1});
  sort_by(out, &path, given.flag(0, false), given.flag(2, false), budget);
  return Value::list(std::move(out));
}

Value unique(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("unique", arguments, {});
  Values out, seen;
  for (const Value& item : elements(value, budget)) {
    const Value key = folded(item, budget);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& old) { return equal(old, key, budget); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(std::move(out));
}

Value sum(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("sum", arguments, {"attribute", "start"});
  Value out = given[1] ? *given[1] : Value(std::int64_t{0});
  for (const Value& item : elements(value, budget)) {
    out = binary("+", out, given.given(0) ? by_path(item, *given[0], budget) : item, budget);
  }
  return out;
}

template <bool wants_largest>
Value extreme(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none(wants_largest ? "max" : "min", arguments, {});
  const Values items = elements(value, budget);
  if (items.empty()) return Value::undefined("there is no item");
  const Value* best = &items.front();
  for (const Value& item : items) {
    const int order = compare(folded(item, budget), folded(*best, budget), budget);
    if (wants_largest ? order > 0 : order < 0) best = &item;
  }
  return *best;
}

Value map(const Value& value, const Arguments& arguments, Budget& budget) {
  Values out;
  if (!truth(value)) return generator({});  // also for none, as Jinja does
  if (const Value* path = arguments.named_value("attribute")) {
    const Value* fallback = arguments.named_value("default");
    for (const Value& item : elements(value, budget)) {
      Value found = by_path(item, *path, budget);
      if (found.is_undefined() && fallback) found = *fallback;
      out.push_back(std::move(found));
    }
    return generator(std::move(out));
  }
  if (arguments.positional.empty() || !arguments.positional[0].is_string()) throw Fault("map needs a filter's name");
  const std::string& name = arguments.positional[0].text();
  if (!is_filter(name)) throw Fault(fmt::format("the filter '{}' is not supported", name));
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : elements(value, budget)) out.push_back(apply_filter(name, item, rest, budget));
  return generator(std::move(out));
}

template <bool by_member, bool keeps>
Value select(const Value& value, const Arguments& arguments, Budget& budget) {
  if (!truth(value)) return generator({});  // also for none, as Jinja does
  constexpr std::size_t kBefore = by_member ? 1 : 0;
  if (arguments.positional.size() < kBefore) throw Fault("the name of a member is missing");
  const bool has_test = arguments.positional.size() > kBefore;
  const std::string name = has_test ? to_text(arguments.positional[kBefore], budget) : "";
  if (has_test && !is_test(name)) throw Fault(fmt::format("the test '{}' is not supported", name));
  const Arguments rest = without_first(arguments, kBefore + 1);
  Values out;
  for (const Value& item : elements(value, budget)) {
    const Value looked_at = by_member ? by_path(item, arguments.positional[0], budget) : item;
    if ((has_test ? apply_test(name, looked_at, rest, budget) : truth(looked_at)) == keeps) out.push_back(item);
  }
  return generator(std::move(out));
}

constexpr std::array kListFilters = {
    NamedFilter{"count", count},
    NamedFilter{"dictsort", dictsort},
    NamedFilter{"first", first},
    NamedFilter{"items", items},
    NamedFilter{"join", join},
    NamedFilter{"last", last},
    NamedFilter{"length", count},
    NamedFilter{"list", list},
    NamedFilter{"map", map},
    NamedFilter{"max", extreme<true>},
    NamedFilter{"min", extreme<false>},
    NamedFilter{"reject", select<false, false>},
    NamedFilter{"rejectattr", select<true, false>},
    NamedFilter{"reverse", reverse},
    NamedFilter{"select", select<false, true>},
    NamedFilter{"selectattr", select<true, true>},
    NamedFilter{"sort", sort},
    NamedFilter{"sum", sum},
    NamedFilter{"unique", unique},
};

}  // namespace

std::span<const NamedFilter> list_filters() { return kListFilters; }

}  // namespace baton::jinja
