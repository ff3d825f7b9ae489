// SPDX-License-Identifier: Apache-2.0
// The filters of single values: texts, numbers and JSON.
#include "engine/text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "engine/text/jinja/library.h"

namespace baton::jinja {
namespace {

Value trim(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("trim", arguments, {"chars"});
  return stripped(to_text(value, budget), given.given(0) ? &given.text(0) : nullptr, true, true, budget);
}

template <std::string (*change)(const std::string&, Budget&)>
Value changed_text(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("this filter", arguments, {});
  return change(to_text(value, budget), budget);
}

Value replace(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("replace", arguments, {"old", "new", "count"});
  return with_replacements(to_text(value, budget), to_text(given.required(0), budget),
                           to_text(given.required(1), budget), given.integer(2, -1), budget);
}

Value string(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("string", arguments, {});
  return value.is_safe() ? value : Value(to_text(value, budget));
}

Value safe(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("safe", arguments, {});
  return Value(to_text(value, budget), true);
}

Value escape(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("escape", arguments, {});
  if (value.is_safe()) return value;
  const std::string text = to_text(value, budget);
  budget.spend_characters(text.size());
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&#34;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
  }
  return Value(std::move(out), true);
}

Value indent(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("indent", arguments, {"width", "first", "blank"});
  if (!value.is_string() || value.is_safe()) throw Fault("indent needs a str");
  std::string space;
  if (given[0] && given[0]->is_string()) {
    space = given[0]->text();
  } else {
    space = std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(given.integer(0, 4), 0, 1000)), ' ');
  }
  const bool blank = given.flag(2, false);
  std::string out;
  bool first = true;
  for (const std::string& line : lines_of(value.text() + "\n", budget)) {
    budget.spend_bytes(line.size() + space.size());
    if (!first) out += '\n';
    if (first ? given.flag(1, false) : blank || !line.empty()) out += space;
    first = false;
    out += line;
    if (out.size() > kMaxStringBytes) throw Fault("a string becomes too long");
  }
  return out;
}

Value tojson(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = given.flag(0, false);
  style.sort_keys = given.flag(3, false);
  if (given.given(1)) {
    if (given.given(1)->is_string()) throw Fault("tojson with a str as indent is not supported");
    style.indent = static_cast<int>(std::clamp<std::int64_t>(given.integer(1, 0), 0, 100));
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
  return to_json(value, style, budget);
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
    const std::string text = stripped(value.text(), nullptr, true, true, budget);
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
  const std::string text = stripped(value.text(), nullptr, true, true, budget);
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
  const Parameters given("round", arguments, {"precision"});
  if (given.integer(0, 0) != 0 || !value.is_number()) throw Fault("round to a precision is not supported");
  std::int64_t storage = 0;
  if (const auto* whole = value.integer(storage)) return *whole;
  return std::nearbyint(value.number());
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
    NamedFilter{"d", otherwise},
    NamedFilter{"default", otherwise},
    NamedFilter{"e", escape},
    NamedFilter{"escape", escape},
    NamedFilter{"float", to_float},
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
  return find_filter(name)->apply(value, arguments, budget);
}

}  // namespace baton::jinja
