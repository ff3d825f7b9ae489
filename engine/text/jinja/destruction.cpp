// SPDX-License-Identifier: Apache-2.0
// Frees values without recursion: a template can build a chain of any length, for example of bound methods, and one
// destructor inside the other would use up the thread's stack.
#include "engine/text/jinja/value.h"

namespace baton::jinja {
namespace {

template <typename T>
std::shared_ptr<T>* sole_owner(Value::Data& data) {
  auto* pointer = std::get_if<std::shared_ptr<T>>(&data);
  return pointer != nullptr && pointer->use_count() == 1 ? pointer : nullptr;
}

void move_to(Values& pending, Value& value) {
  if (value.holds_values()) pending.push_back(std::move(value));
}

void move_to(Values& pending, Values& values) {
  for (Value& value : values) move_to(pending, value);
}

void move_to(Values& pending, std::vector<std::pair<Value, Value>>& items) {
  for (auto& [key, value] : items) {
    move_to(pending, key);
    move_to(pending, value);
  }
}

/// Frees values one after the other: what a value alone owns is moved out of it first. Shared objects are in the list
/// too, since the list may hold all that share them: [a, a] owns `a` with its last element alone.
void free_all(Values& pending) {
  while (!pending.empty()) {
    Value value = std::move(pending.back());
    pending.pop_back();
    value.give_up(pending);
  }
}

/// `owned`: the values of an object that is being destroyed.
template <typename Owned>
void free_owned(Owned& owned) noexcept {
  try {
    Values pending;
    move_to(pending, owned);
    free_all(pending);
  } catch (...) {  // no memory: the destructors free what is left
  }
}

}  // namespace

bool Value::holds_values() const {
  return std::visit(
      [](const auto& held) {
        if constexpr (requires { held.use_count(); }) return held != nullptr;
        return false;
      },
      data_);
}

void Value::give_up(Values& pending) {
  // A sole owner may change what it holds: nobody else can see it, and it was not made as a constant object.
  if (auto* sequence = sole_owner<const SequenceValue>(data_)) {
    move_to(pending, const_cast<SequenceValue&>(**sequence).items);
  } else if (auto* dict = sole_owner<const Dict>(data_)) {
    move_to(pending, const_cast<Dict&>(**dict).items);
  } else if (auto* loop = sole_owner<const Loop>(data_)) {
    move_to(pending, const_cast<Loop&>(**loop).items);
  } else if (auto* function = sole_owner<const Callable>(data_)) {
    move_to(pending, const_cast<Callable&>(**function).self);
  } else if (auto* space = sole_owner<Namespace>(data_)) {
    for (auto& [name, value] : (*space)->members) move_to(pending, value);
  }
}

SequenceValue::SequenceValue(SequenceKind of_kind, Values values, int nesting)
    : kind(of_kind), items(std::move(values)), depth(nesting) {}
SequenceValue::~SequenceValue() { free_owned(items); }

Dict::~Dict() { free_owned(items); }

Loop::Loop(Values values) : items(std::move(values)) {}
Loop::~Loop() { free_owned(items); }

Callable::Callable(std::string shown_name, Value bound, Call function)
    : name(std::move(shown_name)), self(std::move(bound)), call(std::move(function)) {}
Callable::~Callable() { free_owned(self); }

Value callable(std::string name, Callable::Call call) {
  return bound_method(std::move(name), Value(), std::move(call));
}

Value bound_method(std::string name, Value self, Callable::Call call) {
  return Value(Value::Data(
      std::shared_ptr<const Callable>(std::make_shared<Callable>(std::move(name), std::move(self), std::move(call)))));
}

}  // namespace baton::jinja
