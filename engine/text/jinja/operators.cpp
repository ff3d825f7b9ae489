// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/base/units/numbers.h"
#include "engine/base/utf8.h"
#include "engine/text/jinja/library.h"

namespace baton::jinja {
namespace {

[[noreturn]] void fail_overflow() { throw Fault("a number becomes too large"); }

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t whole_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t out = 1;
  for (; exponent > 0; --exponent) {
    if (multiply_overflows(out, base, out)) fail_overflow();
    if (out == 0 || out == 1 || (out == -1 && base == -1)) {
      // Powers of 0, 1 and -1 repeat, so the loop need not run on.
      return out == -1 && exponent % 2 == 0 ? 1 : out;
    }
  }
  return out;
}

Value whole_binary(std::string_view operation, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  const bool divides = operation == "/" || operation == "//" || operation == "%";
  if (divides && b == 0) throw Fault("division by zero");
  if (divides && b == -1 && a == std::numeric_limits<std::int64_t>::min()) fail_overflow();
  if (operation == "+"   ? add_overflows(a, b, out)
      : operation == "-" ? subtract_overflows(a, b, out)
      : operation == "*" ? multiply_overflows(a, b, out)
                         : false) {
    fail_overflow();
  }
  if (operation == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (operation == "//") return floor_quotient(a, b);
  if (operation == "%") return a - floor_quotient(a, b) * b;
  if (operation == "**") {
    if (b >= 0) return whole_power(a, b);
    if (a == 0) throw Fault("division by zero");
    return std::pow(static_cast<double>(a), static_cast<double>(b));
  }
  return out;
}

Value real_binary(std::string_view operation, double a, double b) {
  if (operation == "+") return a + b;
  if (operation == "-") return a - b;
  if (operation == "*") return a * b;
  if (operation == "**") throw Fault("powers of floats are not supported");
  if (b == 0) throw Fault("division by zero");
  if (operation == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return operation == "%" ? Value(rest) : Value(std::floor((a - rest) / b + 0.5));
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.is_string()) {
    if (value.is_safe()) throw Fault("repeating a safe string is not supported");
    const std::string& text = value.text();
    if (text.empty()) return value;
    if (count != 0 && text.size() > kMaxStringBytes / count) throw Fault("a string becomes too long");
    budget.spend_bytes(text.size() * count);
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += text;
    return out;
  }
  const Values& items = value.as_sequence()->items;
  if (count != 0 && !items.empty() && count > std::numeric_limits<std::size_t>::max() / items.size()) fail_overflow();
  budget.spend(items.size() * count);
  Values out;
  if (items.empty()) return Value::sequence(value.as_sequence()->kind, std::move(out));
  for (std::size_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::sequence(value.as_sequence()->kind, std::move(out));
}

bool is_list(const Value& value) {
  const SequenceValue* sequence = value.as_sequence();
  return sequence && (sequence->kind == SequenceKind::list || sequence->kind == SequenceKind::tuple);
}

Value sum(const Value& a, const Value& b, Budget& budget) {
  if (a.is_safe() || b.is_safe()) throw Fault("adding to a safe string is not supported");
  if (a.is_string()) {
    if (a.text().size() + b.text().size() > kMaxStringBytes) throw Fault("a string becomes too long");
    budget.spend_bytes(a.text().size() + b.text().size());
    return a.text() + b.text();
  }
  Values out = a.as_sequence()->items;
  const Values& more = b.as_sequence()->items;
  budget.spend(out.size() + more.size());
  out.insert(out.end(), more.begin(), more.end());
  return Value::sequence(a.as_sequence()->kind, std::move(out));
}

/// Returns the index that Python would use, or nothing when the index is out of range.
std::optional<std::size_t> position(std::int64_t index, std::size_t size) {
  if (index < 0) index += static_cast<std::int64_t>(size);
  if (index < 0 || index >= static_cast<std::int64_t>(size)) return std::nullopt;
  return static_cast<std::size_t>(index);
}

/// Returns the positions that a slice selects from a sequence of this size.
std::vector<std::size_t> slice_positions(const Value& from, const Value& to, const Value& step, std::size_t size) {
  std::int64_t storage = 0;
  const auto integer = [&storage](const Value& value) {
    const auto* number = value.integer(storage);
    if (number == nullptr) throw Fault(fmt::format("a slice cannot be made with a {}", type_name(value)));
    return *number;
  };
  const std::int64_t stride = step.is_none() ? 1 : integer(step);
  if (stride == 0) throw Fault("the step of a slice is zero");
  const auto count = static_cast<std::int64_t>(size);
  const std::int64_t lowest = stride < 0 ? -1 : 0, highest = stride < 0 ? count - 1 : count;
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    const std::int64_t index = integer(value);
    return index < 0 ? std::max(index + count, lowest) : std::min(index, highest);
  };
  const std::int64_t begin = bound(from, stride < 0 ? highest : lowest);
  const std::int64_t end = bound(to, stride < 0 ? lowest : highest);
  std::vector<std::size_t> out;
  for (std::int64_t i = begin; stride < 0 ? i > end : i < end;) {
    out.push_back(static_cast<std::size_t>(i));
    if (add_overflows(i, stride, i)) break;
  }
  return out;
}

}  // namespace

Value binary(std::string_view operation, const Value& a, const Value& b, Budget& budget) {
  for (const Value* side : {&a, &b}) {
    if (side->is_undefined()) throw Fault(why_undefined(*side));
  }
  std::int64_t x = 0, y = 0;
  const auto *whole_a = a.integer(x), *whole_b = b.integer(y);
  if (whole_a && whole_b) return whole_binary(operation, *whole_a, *whole_b);
  if (a.is_number() && b.is_number()) return real_binary(operation, a.number(), b.number());
  if (operation == "*" && whole_b && (a.is_string() || is_list(a))) return repeated(a, *whole_b, budget);
  if (operation == "*" && whole_a && (b.is_string() || is_list(b))) return repeated(b, *whole_a, budget);
  if (operation == "+" && a.is_string() && b.is_string()) return sum(a, b, budget);
  if (operation == "+" && is_list(a) && is_list(b) && a.as_sequence()->kind == b.as_sequence()->kind) {
    return sum(a, b, budget);
  }
  if (operation == "%" && a.is_string()) throw Fault("formatting with % is not supported");
  throw Fault(fmt::format("{} is not defined for {} and {}", operation, type_name(a), type_name(b)));
}

Value negative(const Value& value) {
  std::int64_t storage = 0;
  if (const auto* whole = value.integer(storage)) return whole_binary("-", 0, *whole);
  if (const double* number = value.get<double>()) return -*number;
  if (value.is_undefined()) throw Fault(why_undefined(value));
  throw Fault(fmt::format("a {} has no negative", type_name(value)));
}

Value element_of(const Value& value, const Value& key, Budget& budget) {
  budget.spend(1);
  if (value.is_undefined()) throw Fault(why_undefined(value));
  if (const Dict* dict = value.as_dict()) {
    if (const Value* found = dict->find(key, budget)) return *found;
  }
  std::int64_t storage = 0;
  if (const auto* index = key.integer(storage)) {
    if (is_list(value)) {
      if (const auto at = position(*index, value.as_sequence()->items.size())) return value.as_sequence()->items[*at];
      return Value::undefined(fmt::format("the list has no element {}", *index));
    }
    if (value.as_sequence()) throw Fault(fmt::format("an element of a {} is not supported", type_name(value)));
    if (value.is_string()) {
      const Values characters = elements(value, budget);
      if (const auto at = position(*index, characters.size())) return characters[*at];
      return Value::undefined(fmt::format("the string has no character {}", *index));
    }
  }
  // As in Jinja, a name that is not an element may be a member.
  if (key.is_string() && !value.as_dict()) return member_of(value, key.text(), budget);
  if (key.is_string()) {
    static constexpr std::string_view kMethods[] = {"keys", "values", "items", "get"};
    const bool method = std::find(std::begin(kMethods), std::end(kMethods), key.text()) != std::end(kMethods);
    if (method) return member_of(value, key.text(), budget);
  }
  return Value::undefined(fmt::format("the {} has no element {}", type_name(value), representation(key, budget)));
}

Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step, Budget& budget) {
  if (value.is_undefined()) throw Fault(why_undefined(value));
  if (!is_list(value) && !value.is_string()) {
    if (value.as_sequence()) throw Fault(fmt::format("a slice of a {} is not supported", type_name(value)));
    return Value::undefined(fmt::format("a {} has no slices", type_name(value)));
  }
  const Values items = elements(value, budget);
  budget.spend(items.size());
  const auto positions = slice_positions(from, to, step, items.size());
  if (value.is_string()) {
    std::string out;
    for (const std::size_t i : positions) out += items[i].text();
    return out;
  }
  Values out;
  for (const std::size_t i : positions) out.push_back(items[i]);
  return Value::sequence(value.as_sequence()->kind, std::move(out));
}

}  // namespace baton::jinja
