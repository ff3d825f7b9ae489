// SPDX-License-Identifier: Apache-2.0
// The functions that every template may call, and the matching of arguments to parameters.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "engine/base/overflow.h"
#include "engine/base/system/folders.h"
#include "engine/text/jinja/library.h"

namespace baton::jinja {
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
  return Value::sequence(SequenceKind::view, std::move(out));
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

Value strftime_now(const Arguments& arguments, Budget& budget) {
  const Parameters given("strftime_now", arguments, {"format"});
  const std::string& format = given.text(0);
  budget.spend_characters(format.size());
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') continue;
    ++i;
    if (i < format.size() && format[i] == '-') ++i;
    if (i >= format.size() || std::string_view("aAbBdHIjmMpSUwWyYe%").find(format[i]) == std::string_view::npos) {
      throw Fault("this format of strftime_now is not supported");
    }
  }
  const std::tm local = local_time(std::time(nullptr));
  std::array<char, 512> buffer{};
  // strftime returns 0 both for an empty result and for one that does not fit; a mark before the format tells them
  // apart.
  const std::size_t size = std::strftime(buffer.data(), buffer.size(), ("." + format).c_str(), &local);
  if (size == 0 || format.find('\0') != std::string::npos) throw Fault("the format of strftime_now is too long");
  return std::string(buffer.data() + 1, size - 1);
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

Value global_function(const std::string& name, Budget& budget) {
  using Function = Value (*)(const Arguments&, Budget&);
  const auto made = [&](Function function) {
    return callable(
        name, [function, &budget](const Value&, const Arguments& arguments) { return function(arguments, budget); });
  };
  if (name == "range") return made(range);
  if (name == "dict") return made(dict);
  if (name == "raise_exception") return made(raise_exception);
  if (name == "strftime_now") return made(strftime_now);
  for (const std::string_view other : {"caller", "cycler", "joiner", "kwargs", "lipsum", "self", "super", "varargs"}) {
    if (name == other) throw Fault(fmt::format("'{}' is not supported", name));
  }
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

}  // namespace baton::jinja
