// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
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
  if (operation == "**") {
    const double power = std::pow(a, b);
    if (!std::isfinite(power) || a == 0) throw Fault("this power of floats is not supported");
    return power;
  }
  if (b == 0) throw Fault("division by zero");
  if (operation == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return operation == "%" ? Value(rest) : Value(std::floor((a - rest) / b + 0.5));
}

Value repeated(const Value& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.is_string()) {
    const std::string& text = value.text();
    if (text.empty()) return value;
    if (count != 0 && text.size() > kMaxStringBytes / count) throw Fault("a string becomes too long");
    budget.spend_bytes(text.size() * count);
    if (!traced(value).values.empty()) {
      TextBuilder out;
      for (std::size_t i = 0; i < count; ++i) out.add_value(value, budget);
      return Value(out.take(), value.is_safe());
    }
    std::string out;
    for (std::size_t i = 0; i < count; ++i) out += text;
    return Value(std::move(out), value.is_safe());
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
  if (a.is_string()) {
    const bool safe = a.is_safe() || b.is_safe();
    TextBuilder out;
    out.add_value(safe ? Value(escaped(a, budget), true) : a, budget);
    out.add_value(safe ? Value(escaped(b, budget), true) : b, budget);
    return Value(out.take(), safe);
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

/// Where each character of a text begins, and the text's end.
std::vector<std::size_t> character_starts(const std::string& text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); i += utf8::at(text, i).bytes) starts.push_back(i);
  starts.push_back(text.size());
  return starts;
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
    const bool is_shown = side == &b && operation == "%" && a.is_string();  // as an empty text
    if (side->is_undefined() && !is_shown) throw Fault(why_undefined(*side));
  }
  if (operation == "%" && a.is_string()) {
    if (a.is_safe()) throw Fault("formatting a safe string is not supported");
    return made_of(Value(percent_formatted(a.text(), b, budget), false), {&a});
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
    const bool is_range = value.as_sequence() && value.as_sequence()->kind == SequenceKind::range;
    if (is_list(value) || is_range) {
      if (const auto at = position(*index, value.as_sequence()->items.size())) return value.as_sequence()->items[*at];
      return Value::undefined(fmt::format("the list has no element {}", *index));
    }
    if (value.is_string()) {
      budget.spend(value.text().size());
      const std::vector<std::size_t> starts = character_starts(value.text());
      if (const auto at = position(*index, starts.size() - 1))
        return cut(value, starts[*at], starts[*at + 1] - starts[*at], budget);
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
  return Value::undefined(fmt::format("the {} has no element {}", type_name(value), representation(key, budget).text));
}

Value slice_of(const Value& value, const Value& from, const Value& to, const Value& step, Budget& budget) {
  if (value.is_undefined()) throw Fault(why_undefined(value));
  if (!is_list(value) && !value.is_string()) {
    if (value.as_sequence() && value.as_sequence()->kind == SequenceKind::range)
      throw Fault(fmt::format("a slice of a {} is not supported", type_name(value)));
    return Value::undefined(fmt::format("a {} has no slices", type_name(value)));
  }
  if (value.is_string()) {
    budget.spend(2 * value.text().size());
    const std::vector<std::size_t> starts = character_starts(value.text());
    const auto positions = slice_positions(from, to, step, starts.size() - 1);
    if (positions.empty()) return Value(std::string(), value.is_safe());
    if (positions.back() - positions.front() + 1 == positions.size()) {  // one part of the text
      const std::size_t begin = starts[positions.front()];
      return cut(value, begin, starts[positions.back() + 1] - begin, budget);
    }
    TextBuilder out;
    for (const std::size_t i : positions) out.add(traced(value), starts[i], starts[i + 1] - starts[i], budget);
    return Value(out.take(), value.is_safe());
  }
  const Values items = elements(value, budget);
  budget.spend(items.size());
  const auto positions = slice_positions(from, to, step, items.size());
  Values out;
  for (const std::size_t i : positions) out.push_back(items[i]);
  return Value::sequence(value.as_sequence()->kind, std::move(out));
}

// The functions that every template may call, and the matching of arguments to parameters.

namespace {

constexpr std::int64_t kMaxRangeLength = 100'000;  // the limit of Jinja's sandbox

Value range(const Arguments& arguments, Budget& budget) {
  const Parameters given("range", arguments, {"start", "stop", "step"});
  given.required(0);
  const bool one = given[1] == nullptr;
  const std::int64_t begin = one ? 0 : given.integer(0, 0), end = one ? given.integer(0, 0) : given.integer(1, 0);
  const std::int64_t step = given.integer(2, 1);
  if (step == 0) throw Fault("the step of a range is zero");
  Values out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<std::int64_t>(out.size()) == kMaxRangeLength) throw Fault("a range becomes too long");
    out.emplace_back(i);
    if (add_overflows(i, step, i)) break;
  }
  budget.spend(out.size());
  return Value::sequence(SequenceKind::range, std::move(out));
}

/// Returns a function that returns nothing the first time, and the separator then.
Value joiner(const Arguments& arguments, Budget& budget) {
  const Parameters given("joiner", arguments, {"sep"});
  const auto used = std::make_shared<bool>(false);
  return callable(
      "joiner", [used, separator = given[0] ? to_text(*given[0], budget) : ", "](const Value&, const Arguments& none) {
        const Parameters nothing("a joiner", none, {});
        return Value(std::exchange(*used, true) ? separator : "");
      });
}

Value dict(const Arguments& arguments, Budget& budget) {
  Dict out;
  if (arguments.positional.size() > 1) throw Fault("dict takes one dict at most");
  if (!arguments.positional.empty()) {
    if (!arguments.positional[0].as_dict()) throw Fault("dict of other things than a dict is not supported");
    const Dict& from = *arguments.positional[0].as_dict();
    budget.spend(2 * from.items.size());
    out.items = from.items;
  }
  for (const auto& [name, value] : arguments.named) out.set(Value(name), value, budget);
  return Value::dict(std::move(out));
}

Value raise_exception(const Arguments& arguments, Budget& budget) {
  const Parameters given("raise_exception", arguments, {"message"});
  throw Fault(fmt::format("the template refuses: {}", to_text(given.required(0), budget)));
}

}  // namespace

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : function_(function), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size()) {
    throw Fault(fmt::format("{} takes {} arguments, not {}", function_, names_.size(), arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) throw Fault(fmt::format("{} has no argument '{}' here", function_, name));
    auto& slot = values_[static_cast<std::size_t>(it - names_.begin())];
    if (slot != nullptr) throw Fault(fmt::format("{} was given '{}' twice", function_, name));
    slot = &value;
  }
}

const Value* Parameters::given(std::size_t index) const {
  const Value* value = values_[index];
  return value == nullptr || value->is_none() ? nullptr : value;
}

const Value& Parameters::required(std::size_t index) const {
  if (values_[index] == nullptr) throw Fault(fmt::format("{} needs the argument '{}'", function_, names_[index]));
  return *values_[index];
}

std::int64_t Parameters::integer(std::size_t index, std::int64_t otherwise) const {
  if (given(index) == nullptr) return otherwise;
  std::int64_t storage = 0;
  const auto* whole = values_[index]->integer(storage);
  if (whole == nullptr) throw Fault(fmt::format("'{}' of {} must be an int", names_[index], function_));
  return *whole;
}

bool Parameters::flag(std::size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : truth(*values_[index]);
}

const std::string& Parameters::text(std::size_t index) const {
  const Value& value = required(index);
  if (!value.is_string()) {
    throw Fault(fmt::format("'{}' of {} must be a str, not a {}", names_[index], function_, type_name(value)));
  }
  return value.text();
}

Value global_function(const std::string& name, std::int64_t local_seconds, Budget& budget) {
  using Function = Value (*)(const Arguments&, Budget&);
  const auto made = [&](Function function) {
    return callable(
        name, [function, &budget](const Value&, const Arguments& arguments) { return function(arguments, budget); });
  };
  if (name == "range") return made(range);
  if (name == "dict") return made(dict);
  if (name == "raise_exception") return made(raise_exception);
  if (name == "joiner") return made(joiner);
  if (name == "strftime_now") {
    return callable(name, [local_seconds, &budget](const Value&, const Arguments& arguments) {
      return Value(date_text(Parameters("strftime_now", arguments, {"format"}).text(0), local_seconds, budget));
    });
  }
  for (const std::string_view other : {"caller", "cycler", "kwargs", "lipsum", "self", "super", "varargs"}) {
    if (name == other) throw Fault(fmt::format("'{}' is not supported", name));
  }
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

// The evaluation of value.name: keys of dicts, members of namespaces and loops, and methods.

namespace {

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

[[noreturn]] void unsupported(const Value& value, const std::string& name) {
  throw Fault(fmt::format("the member '{}' of a {} is not supported", name, type_name(value)));
}

Value dict_member(const Value& value, const std::string& name, Budget& budget) {
  const Dict& dict = *value.as_dict();
  if (name == "get") {
    return bound_method(name, value, [&budget](const Value& self, const Arguments& arguments) {
      const Parameters given("get", arguments, {"key", "default"});
      const Value* found = self.as_dict()->find(given.required(0), budget);
      return found ? *found : given[1] ? *given[1] : Value();
    });
  }
  if (one_of(name, {"items", "keys", "values"})) {
    return bound_method(name, value, [name, &budget](const Value& self, const Arguments& arguments) {
      const Parameters none(name, arguments, {});
      Values out;
      for (const auto& [key, item] : self.as_dict()->items) {
        budget.spend(1);
        out.push_back(name == "keys"     ? key
                      : name == "values" ? item
                                         : Value::sequence(SequenceKind::tuple, {key, item}));
      }
      return Value::sequence(SequenceKind::view, std::move(out));
    });
  }
  if (name == "copy") {
    return bound_method(name, value, [name](const Value& self, const Arguments& arguments) {
      const Parameters none(name, arguments, {});
      return self;  // no template can change a dict
    });
  }
  if (one_of(name, {"clear", "fromkeys", "pop", "popitem", "setdefault", "update"})) unsupported(value, name);
  const Value* found = dict.find(Value(name), budget);
  return found ? *found : Value::undefined(fmt::format("the dict has no member '{}'", name));
}

Value loop_member(const Loop& loop, const Value& value, const std::string& name) {
  const auto number = [](std::size_t count) { return Value(static_cast<std::int64_t>(count)); };
  const std::size_t size = loop.items.size();
  if (name == "index") return number(loop.index + 1);
  if (name == "index0") return number(loop.index);
  if (name == "revindex") return number(size - loop.index);
  if (name == "revindex0") return number(size - loop.index - 1);
  if (name == "first") return Value(loop.index == 0);
  if (name == "last") return Value(loop.index + 1 == size);
  if (name == "length") return number(size);
  if (name == "depth") return Value(loop.depth);
  if (name == "depth0") return Value(loop.depth - 1);
  if (name == "previtem")
    return loop.index > 0 ? loop.items[loop.index - 1] : Value::undefined("there is no previous item");
  if (name == "nextitem")
    return loop.index + 1 < size ? loop.items[loop.index + 1] : Value::undefined("there is no next item");
  if (name == "cycle") {
    return callable(name, [index = loop.index](const Value&, const Arguments& arguments) {
      if (arguments.positional.empty() || !arguments.named.empty()) throw Fault("cycle() needs values");
      return arguments.positional[index % arguments.positional.size()];
    });
  }
  unsupported(value, name);
}

Value list_member(const Value& value, const std::string& name, Budget& budget) {
  const SequenceKind kind = value.as_sequence()->kind;
  const bool list = kind == SequenceKind::list || kind == SequenceKind::tuple;
  if (list && one_of(name, {"count", "index"})) {
    return bound_method(name, value, [name, &budget](const Value& self, const Arguments& arguments) {
      const Parameters given(name, arguments, {"value"});
      const Values& items = self.as_sequence()->items;
      std::int64_t count = 0;
      for (std::size_t i = 0; i < items.size(); ++i) {
        if (!equal(items[i], given.required(0), budget)) continue;
        if (name == "index") return Value(static_cast<std::int64_t>(i));
        ++count;
      }
      if (name == "index") throw Fault("the value is not in the list");
      return Value(count);
    });
  }
  if (list && kind == SequenceKind::list && name == "copy") {
    return bound_method(name, value, [name](const Value& self, const Arguments& arguments) {
      const Parameters none(name, arguments, {});
      return self;  // no template can change a list
    });
  }
  if (!list || one_of(name, {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"})) {
    unsupported(value, name);
  }
  return Value::undefined(fmt::format("the {} has no member '{}'", type_name(value), name));
}

}  // namespace

Value member_of(const Value& value, const std::string& name, Budget& budget) {
  budget.spend_bytes(4 * name.size());  // for messages; a name may be any text
  if (value.is_undefined()) throw Fault(why_undefined(value));
  if (value.as_dict() && !name.starts_with("__")) return dict_member(value, name, budget);
  if (name.starts_with('_')) throw Fault(fmt::format("the member '{}' is not safe", name));
  if (const auto* members = value.get<std::shared_ptr<Namespace>>()) {
    const auto found = (*members)->members.find(name);
    if (found != (*members)->members.end()) return found->second;
    return Value::undefined(fmt::format("the namespace has no member '{}'", name));
  }
  if (const auto* loop = value.get<std::shared_ptr<const Loop>>()) return loop_member(**loop, value, name);
  if (value.as_sequence()) return list_member(value, name, budget);
  if (value.is_string()) return string_method(value, name, budget);
  if (value.get<std::shared_ptr<const Callable>>()) unsupported(value, name);
  if (value.is_number() && one_of(name, {"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                         "fromhex", "hex", "imag", "is_integer", "numerator", "real", "to_bytes"})) {
    unsupported(value, name);
  }
  return Value::undefined(fmt::format("the {} has no member '{}'", type_name(value), name));
}

// The tests after the keyword "is".

namespace {

using Test = bool (*)(const Value&, const Arguments&, Budget&);

/// A test without arguments.
template <bool (*holds)(const Value&)>
bool plain(const Value& value, const Arguments& arguments, Budget&) {
  const Parameters none("this test", arguments, {});
  return holds(value);
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.as_dict() != nullptr; }
bool is_number(const Value& value) { return value.is_number(); }
bool is_integer(const Value& value) { return value.get<std::int64_t>() != nullptr; }
bool is_float(const Value& value) { return value.get<double>() != nullptr; }
bool is_boolean(const Value& value) { return value.get<bool>() != nullptr; }
bool is_true(const Value& value) { return value.get<bool>() && *value.get<bool>(); }
bool is_false(const Value& value) { return value.get<bool>() && !*value.get<bool>(); }
bool is_callable(const Value& value) { return value.get<std::shared_ptr<const Callable>>() != nullptr; }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.as_sequence() || value.as_dict() ||
         value.get<std::shared_ptr<const Loop>>();
}
bool is_sequence(const Value& value) {
  const SequenceValue* sequence = value.as_sequence();
  return value.is_undefined() || value.is_string() || value.as_dict() ||
         (sequence && sequence->kind != SequenceKind::generator && sequence->kind != SequenceKind::view);
}

template <int wanted_rest>
bool rest_of_two(const Value& value) {
  std::int64_t storage = 0;
  const auto* whole = value.integer(storage);
  if (whole == nullptr) throw Fault(fmt::format("a {} is neither odd nor even", type_name(value)));
  return (*whole % 2 != 0) == (wanted_rest == 1);
}

template <bool wants_upper>
bool has_case(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters none("this test", arguments, {});
  const std::string text = to_text(value, budget);
  const std::string in_upper = upper(text, budget), in_lower = lower(text, budget);
  return text == (wants_upper ? in_upper : in_lower) && in_upper != in_lower;
}

bool divisible_by(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters given("divisibleby", arguments, {"num"});
  return equal(binary("%", value, given.required(0), budget), Value(std::int64_t{0}), budget);
}

template <bool wanted>
bool equal_to(const Value& value, const Arguments& arguments, Budget& budget) {
  return equal(value, Parameters("this test", arguments, {"other"}).required(0), budget) == wanted;
}

/// Implements Python's "is" for singletons; for other values the result would depend on Python's object identity.
bool same_as(const Value& value, const Arguments& arguments, Budget& budget) {
  const Parameters parameters("sameas", arguments, {"other"});
  const Value& other = parameters.required(0);
  const auto single = [](const Value& x) { return x.is_none() || x.get<bool>() != nullptr; };
  if (!single(value) && !single(other))
    throw Fault("sameas of other values than true, false and none is not supported");
  return type_name(value) == type_name(other) && equal(value, other, budget);
}

/// True when the order of the two values, -1, 0 or 1, is one of the given orders.
template <int first, int second>
bool ordered(const Value& value, const Arguments& arguments, Budget& budget) {
  const int order = compare(value, Parameters("this test", arguments, {"other"}).required(0), budget);
  const int sign = order < 0 ? -1 : order > 0;
  return sign == first || sign == second;
}

bool escaped_text(const Value& value) { return value.is_safe(); }
bool names_filter(const Value& value) { return value.is_string() && is_filter(value.text()); }
bool names_test(const Value& value) { return value.is_string() && is_test(value.text()); }

bool in(const Value& value, const Arguments& arguments, Budget& budget) {
  return contains(Parameters("in", arguments, {"seq"}).required(0), value, budget);
}

struct Named {
  std::string_view name;
  Test test;
};
constexpr std::array kTests = {
    Named{"!=", equal_to<false>},
    Named{"<", ordered<-1, -1>},
    Named{"<=", ordered<-1, 0>},
    Named{"==", equal_to<true>},
    Named{">", ordered<1, 1>},
    Named{">=", ordered<1, 0>},
    Named{"boolean", plain<is_boolean>},
    Named{"callable", plain<is_callable>},
    Named{"defined", plain<is_defined>},
    Named{"divisibleby", divisible_by},
    Named{"eq", equal_to<true>},
    Named{"equalto", equal_to<true>},
    Named{"escaped", plain<escaped_text>},
    Named{"even", plain<rest_of_two<0>>},
    Named{"false", plain<is_false>},
    Named{"filter", plain<names_filter>},
    Named{"float", plain<is_float>},
    Named{"ge", ordered<1, 0>},
    Named{"greaterthan", ordered<1, 1>},
    Named{"gt", ordered<1, 1>},
    Named{"in", in},
    Named{"integer", plain<is_integer>},
    Named{"iterable", plain<is_iterable>},
    Named{"le", ordered<-1, 0>},
    Named{"lessthan", ordered<-1, -1>},
    Named{"lower", has_case<false>},
    Named{"lt", ordered<-1, -1>},
    Named{"mapping", plain<is_mapping>},
    Named{"ne", equal_to<false>},
    Named{"none", plain<is_none>},
    Named{"number", plain<is_number>},
    Named{"odd", plain<rest_of_two<1>>},
    Named{"sameas", same_as},
    Named{"sequence", plain<is_sequence>},
    Named{"string", plain<is_string>},
    Named{"test", plain<names_test>},
    Named{"true", plain<is_true>},
    Named{"undefined", plain<is_undefined>},
    Named{"upper", has_case<true>},
};

const Named* find_test(std::string_view name) {
  const auto it = std::find_if(kTests.begin(), kTests.end(), [&](const Named& x) { return x.name == name; });
  return it == kTests.end() ? nullptr : &*it;
}

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Budget& budget) {
  budget.spend(1);
  return find_test(name)->test(value, arguments, budget);
}

}  // namespace baton::jinja
