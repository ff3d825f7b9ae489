// SPDX-License-Identifier: Apache-2.0
// The filters, in two tables: those of single values and those of lists.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

#include "engine/text/jinja/library.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {

struct NamedFilter {
  std::string_view name;
  Value (*apply)(const Value& value, const Arguments& arguments, Budget& budget);
};

std::span<const NamedFilter> list_filters();

// The filters of single values: texts, numbers and JSON.

namespace {

/// str(value), which a string is already.
Value text_value(const Value& value, Budget& budget) {
  return value.is_string() ? value : Value(traced_text(value, budget), false);
}

Value trim(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("trim", arguments, {"chars"});
  return stripped(text_value(value, budget), given.given(0) ? &given.text(0) : nullptr, true, true, budget);
}

template <std::string (*change)(const std::string&, Budget&)>
Value changed_text(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("this filter", arguments, {});
  return Value(change(to_text(value, budget), budget), value.is_safe() && change != title_words);
}

Value replace(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  return Value(with_replacements(traced_text(value, budget), to_text(given.required(0), budget),
                                 traced_text(given.required(1), budget), given.integer(2, -1), budget),
               false);
}

Value string(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("string", arguments, {});
  return text_value(value, budget);
}

Value safe(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("safe", arguments, {});
  return Value(traced_text(value, budget), true);
}

Value escape(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("escape", arguments, {});
  return Value(escaped(value, budget), true);
}

Value forced_escape(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("forceescape", arguments, {});
  return Value(escaped(Value(traced_text(value, budget), false), budget), true);
}

Value center(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("center", arguments, {"width"});
  return Value(centered(to_text(value, budget), given.integer(0, 80), ' ', true, true, budget), value.is_safe());
}

Value format(const Value& value, const Arguments& arguments, Budget& budget) {
  if (value.is_safe()) throw Fault("formatting a safe string is not supported");
  if (!arguments.positional.empty() && !arguments.named.empty())
    throw Fault("format takes positional or named arguments, not both");
  if (arguments.named.empty())
    return Value(
        percent_formatted(to_text(value, budget), Value::sequence(SequenceKind::tuple, arguments.positional), budget),
        false);
  Dict named;
  for (const auto& [name, argument] : arguments.named) named.set(Value(name), argument, budget);
  return Value(percent_formatted(to_text(value, budget), Value::dict(std::move(named)), budget), false);
}

Value truncate(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!value.is_string() || value.is_safe()) throw Fault("truncate needs a str");
  const std::string end = given[2] ? given.text(2) : "...";
  constexpr std::int64_t kLongest = kMaxStringBytes;
  const std::int64_t most = std::min(given.integer(0, 255), kLongest), leeway = std::min(given.integer(3, 5), kLongest);
  const auto end_size = static_cast<std::int64_t>(length(Value(end), budget));
  if (most < end_size || leeway < 0) throw Fault("truncate needs room for its end, and a leeway of 0 at least");
  if (static_cast<std::int64_t>(length(value, budget)) <= most + leeway) return value;
  const Value none;
  const Value kept = slice_of(value, none, Value(most - end_size), none, budget);
  if (given.flag(1, false)) return Value(kept.text() + end);
  return Value(kept.text().substr(0, kept.text().rfind(' ')) + end);
}

Value indent(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  if (!value.is_string()) throw Fault("indent needs a str");
  std::string space;
  if (given[0] && given[0]->is_string()) {
    space = given[0]->text();
  } else {
    space = std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(given.integer(0, 4), 0, 1000)), ' ');
  }
  const bool blank = given.flag(2, false);
  TextBuilder out;
  bool first = true;
  for (const auto& [begin, size] : lines_of(value.text() + "\n", budget)) {
    if (!first) out.add("\n", budget);
    if (first ? given.flag(1, false) : blank || size > 0) out.add(space, budget);
    first = false;
    out.add(traced(value), begin, size, budget);
  }
  return Value(out.take(), value.is_safe());
}

Value tojson(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = given.flag(0, false);
  style.sort_keys = given.flag(3, false);
  if (given.given(1)) {
    if (given.given(1)->is_string()) {
      style.indent = 1;
      style.indent_text = given.given(1)->text();
      if (style.indent_text.size() > 100) throw Fault("the indent of tojson is too long");
    } else {
      style.indent = static_cast<int>(std::clamp<std::int64_t>(given.integer(1, 0), 0, 100));
    }
    style.item_separator.assign(1, ',');  // assigning "," makes GCC 12 warn of an impossible overlap
  }
  if (const Value* separators = given.given(2)) {
    const SequenceValue* two = separators->as_sequence();
    if (!two || two->items.size() != 2 || !two->items[0].is_string() || !two->items[1].is_string()) {
      throw Fault("the separators of tojson must be two str");
    }
    style.item_separator = two->items[0].text();
    style.key_separator = two->items[1].text();
  }
  return Value(to_json(value, style, budget), false);
}

Value to_int(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("int", arguments, {"default", "base"});
  if (given.integer(1, 10) != 10) throw Fault("int with another base is not supported");
  std::int64_t storage = 0;
  if (const auto* whole = value.integer(storage)) return *whole;
  const Value otherwise = given[0] ? *given[0] : Value(std::int64_t{0});
  double number = 0;
  if (value.is_string()) {
    budget.spend_characters(value.text().size());
    const std::string text = stripped(Value(value.text()), nullptr, true, true, budget).text();
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    const char* const end = text.data() + text.size();
    std::int64_t whole = 0;
    if (const auto read = std::from_chars(begin, end, whole); read.ec == std::errc() && read.ptr == end) return whole;
    const auto read = std::from_chars(begin, end, number);
    if (begin == end || read.ec != std::errc() || read.ptr != end) {
      if (text.find('_') != std::string::npos) throw Fault("int of a text with _ is not supported");
      return otherwise;
    }
  } else if (const double* real = value.get<double>()) {
    number = *real;
  } else {
    return otherwise;
  }
  if (std::isnan(number) || std::isinf(number)) return otherwise;
  if (std::fabs(number) >= 9e18) throw Fault("a number becomes too large");
  return static_cast<std::int64_t>(number);
}

Value to_float(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("float", arguments, {"default"});
  const Value otherwise = given[0] ? *given[0] : Value(0.0);
  if (value.is_number()) return value.number();
  if (!value.is_string()) return otherwise;
  budget.spend_characters(value.text().size());
  const std::string text = stripped(Value(value.text()), nullptr, true, true, budget).text();
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto read = std::from_chars(begin, end, number);
  return begin != end && read.ec == std::errc() && read.ptr == end ? Value(number) : otherwise;
}

Value absolute(const Value& value, const Arguments& arguments, Budget&) {
  const Parameters none("abs", arguments, {});
  if (!value.is_number()) throw Fault(fmt::format("a {} has no absolute value", type_name(value)));
  std::int64_t storage = 0;
  const auto* whole = value.integer(storage);
  if (whole == nullptr) return std::fabs(value.number());
  return *whole < 0 ? negative(value) : Value(*whole);
}

Value rounded(const Value& value, const Arguments& arguments, Budget&) {
  const Parameters given("round", arguments, {"precision", "method"});
  if (!value.is_number()) throw Fault(fmt::format("a {} cannot be rounded", type_name(value)));
  const std::int64_t precision = given.integer(0, 0);
  const std::string method = given[1] ? given.text(1) : "common";
  if (precision < 0 || precision > 100) throw Fault("round to this precision is not supported");
  if (method != "common") {
    if (method != "ceil" && method != "floor") throw Fault("the method of round is common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = value.number() * scale;
    return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale;
  }
  std::int64_t storage = 0;
  if (const auto* whole = value.integer(storage)) return *whole;
  const std::string digits = fmt::format("{:.{}f}", value.number(), precision);  // as Python: the exact value's
  double out = value.number();
  std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return out;
}

Value otherwise(const Value& value, const Arguments& arguments, Budget&) {
  const Parameters given("default", arguments, {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (given.flag(1, false) && !truth(value));
  if (!missing) return value;
  return given[0] ? *given[0] : Value("");
}

constexpr std::array kFilters = {
    NamedFilter{"abs", absolute},
    NamedFilter{"capitalize", changed_text<capitalized>},
    NamedFilter{"center", center},
    NamedFilter{"d", otherwise},
    NamedFilter{"default", otherwise},
    NamedFilter{"e", escape},
    NamedFilter{"escape", escape},
    NamedFilter{"float", to_float},
    NamedFilter{"forceescape", forced_escape},
    NamedFilter{"format", format},
    NamedFilter{"indent", indent},
    NamedFilter{"int", to_int},
    NamedFilter{"lower", changed_text<lower>},
    NamedFilter{"replace", replace},
    NamedFilter{"round", rounded},
    NamedFilter{"safe", safe},
    NamedFilter{"string", string},
    NamedFilter{"title", changed_text<title_words>},
    NamedFilter{"tojson", tojson},
    NamedFilter{"trim", trim},
    NamedFilter{"truncate", truncate},
    NamedFilter{"upper", changed_text<upper>},
};

const NamedFilter* find_filter(std::string_view name) {
  for (const NamedFilter& filter : kFilters) {
    if (filter.name == name) return &filter;
  }
  for (const NamedFilter& filter : list_filters()) {
    if (filter.name == name) return &filter;
  }
  return nullptr;
}

}  // namespace

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget) {
  budget.spend(1);
  return made_of(find_filter(name)->apply(value, arguments, budget), value, arguments);
}

// The filters of lists and of other iterable values.

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
    out = element_of(out, number ? Value(index) : Value(std::string(part)), budget);
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
  return Value::sequence(SequenceKind::list, elements(value, budget));
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
  const ChatText separator = given[0] ? traced_text(*given[0], budget) : ChatText();
  TextBuilder out;
  bool is_first = true;
  for (const Value& item : elements(value, budget)) {
    if (!is_first) out.add(separator, budget);
    is_first = false;
    out.add_value(given.given(1) ? by_path(item, *given[1], budget) : item, budget);
  }
  return Value(out.take(), false);
}

/// Lists of `size` items; the last one is filled up with `fill`.
Value batch(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("batch", arguments, {"linecount", "fill_with"});
  given.required(0);
  const std::int64_t size = given.integer(0, 0);
  if (size < 1 || size > 100'000) throw Fault("batch needs a size from 1 to 100000");
  Values out, part;
  const auto flush = [&] { out.push_back(Value::sequence(SequenceKind::list, std::exchange(part, {}))); };
  for (Value& item : elements(value, budget)) {
    part.push_back(std::move(item));
    if (static_cast<std::int64_t>(part.size()) == size) flush();
  }
  if (part.empty()) return generator(std::move(out));
  if (given.given(1)) {
    budget.spend(static_cast<std::size_t>(size));
    part.resize(static_cast<std::size_t>(size), *given[1]);
  }
  flush();
  return generator(std::move(out));
}

/// As many lists as told, the first ones longer by one.
Value slice(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("slice", arguments, {"slices", "fill_with"});
  given.required(0);
  const std::int64_t slices = given.integer(0, 0);
  if (slices < 1 || slices > 100'000) throw Fault("slice needs a number from 1 to 100000");
  budget.spend(static_cast<std::size_t>(slices));
  const Values items = elements(value, budget);
  const auto count = static_cast<std::size_t>(slices);
  const std::size_t size = items.size() / count, longer = items.size() % count;
  Values out;
  auto at = items.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = at + static_cast<std::ptrdiff_t>(size + (i < longer ? 1 : 0));
    Values part(at, end);
    if (given.given(1) && i >= longer) part.push_back(*given[1]);
    out.push_back(Value::sequence(SequenceKind::list, std::move(part)));
    at = end;
  }
  return generator(std::move(out));
}

Value reverse(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("reverse", arguments, {});
  Values items = elements(value, budget);
  std::reverse(items.begin(), items.end());
  if (!value.is_string()) return generator(std::move(items));
  TextBuilder out;
  for (const Value& item : items) out.add_value(item, budget);
  return Value(out.take(), value.is_safe());
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
  return Value::sequence(SequenceKind::list, std::move(out));
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
  return Value::sequence(SequenceKind::list, std::move(out));
}

Value unique(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("unique", arguments, {"case_sensitive", "attribute"});
  Values out, seen;
  for (const Value& item : elements(value, budget)) {
    const Value looked_at = given.given(1) ? by_path(item, *given[1], budget) : item;
    const Value key = given.flag(0, false) ? looked_at : folded(looked_at, budget);
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
  const Parameters given(wants_largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Values items = elements(value, budget);
  if (items.empty()) return Value::undefined("there is no item");
  const auto key = [&](const Value& item) {
    const Value looked_at = given.given(1) ? by_path(item, *given[1], budget) : item;
    return given.flag(0, false) ? looked_at : folded(looked_at, budget);
  };
  const Value* best = &items.front();
  for (const Value& item : items) {
    const int order = compare(key(item), key(*best), budget);
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
    NamedFilter{"batch", batch},
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
    NamedFilter{"slice", slice},
    NamedFilter{"sort", sort},
    NamedFilter{"sum", sum},
    NamedFilter{"unique", unique},
};

}  // namespace

std::span<const NamedFilter> list_filters() { return kListFilters; }

}  // namespace baton::jinja
