// SPDX-License-Identifier: Apache-2.0
// The evaluation of value.name: keys of dicts, members of namespaces and loops, and methods.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/text/jinja/library.h"

namespace baton::jinja {
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
  if (one_of(name, {"clear", "copy", "fromkeys", "pop", "popitem", "setdefault", "update"})) unsupported(value, name);
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
  if (name == "depth") return Value(std::int64_t{1});
  if (name == "depth0") return Value(std::int64_t{0});
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
  if (!list || one_of(name, {"append", "clear", "copy", "extend", "insert", "pop", "remove", "reverse", "sort"})) {
    unsupported(value, name);
  }
  return Value::undefined(fmt::format("the {} has no member '{}'", type_name(value), name));
}

}  // namespace

Value member_of(const Value& value, const std::string& name, Budget& budget) {
  budget.spend_bytes(4 * name.size());  // for messages; a name may be any text
  if (value.is_undefined()) throw Fault(value.why_undefined());
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

}  // namespace baton::jinja
