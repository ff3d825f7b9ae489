// SPDX-License-Identifier: Apache-2.0
// The half of the renderer that evaluates expressions.
#include <fmt/format.h>

#include "engine/text/jinja/deeper.h"
#include "engine/text/jinja/library.h"

namespace baton::jinja {
Value Renderer::evaluate(const Expression& expression, const ScopePtr& scope) {
  try {
    const Deeper deeper(depth_);
    budget_.spend(1);
    Value value = compute(expression, scope);
    if (undefined_equals_none_ && value.is_undefined()) return value.undefined_apart();
    return value;
  } catch (const Fault& fault) {
    fail(origin_, expression.place, fault.what());
  }
}

Value Renderer::compute(const Expression& expression, const ScopePtr& scope) {
  const auto part = [&](std::size_t i) { return evaluate(*expression.items[i], scope); };
  switch (expression.kind) {
    case ExpressionKind::literal:
      return expression.literal;
    case ExpressionKind::name:
      return look_up(expression.text, scope);
    case ExpressionKind::member:
      return member_of(part(0), expression.text, budget_);
    case ExpressionKind::subscript:
      return element_of(part(0), part(1), budget_);
    case ExpressionKind::slice:
      return compute_slice(expression, scope);
    case ExpressionKind::call:
      return compute_call(expression, scope);
    case ExpressionKind::filter:
      return apply_filter(expression.text, part(0), arguments_of(expression, scope), budget_);
    case ExpressionKind::test:
      return apply_test(expression.text, part(0), arguments_of(expression, scope), budget_);
    case ExpressionKind::unary:
      if (expression.text == "not") return !truth(part(0));
      return expression.text == "-" ? negative(part(0)) : negative(negative(part(0)));
    case ExpressionKind::binary: {
      const Value left = part(0);
      return binary(expression.text, left, part(1), budget_);
    }
    case ExpressionKind::logic: {
      Value left = part(0);
      return truth(left) == (expression.text == "or") ? left : part(1);
    }
    case ExpressionKind::comparison:
      return compute_comparison(expression, scope);
    case ExpressionKind::joined:
      return compute_joined(expression, scope);
    case ExpressionKind::conditional:
      if (truth(part(0))) return part(1);
      return expression.items.size() == 3 ? part(2) : Value::undefined("the condition is false and there is no else");
    case ExpressionKind::list:
      return compute_list(expression, SequenceKind::list, scope);
    case ExpressionKind::tuple:
      return compute_list(expression, SequenceKind::tuple, scope);
    case ExpressionKind::dict:
      return compute_dict(expression, scope);
  }
  return Value();
}

Value Renderer::look_up(const std::string& name, const ScopePtr& scope) {
  if (const Value* found = scope->find(name, budget_)) return *found;
  if (name == "namespace") {
    return callable(name, [this](const Value&, const Arguments& arguments) { return make_namespace(arguments); });
  }
  return global_function(name, budget_);
}

Value Renderer::make_namespace(const Arguments& arguments) {
  auto out = std::make_shared<Namespace>();
  const auto set = [&](const std::string& name, const Value& value) {
    if (name.starts_with('_')) throw Fault(fmt::format("the member '{}' is not safe", name));
    out->members.insert_or_assign(name, value);
  };
  if (arguments.positional.size() > 1) throw Fault("namespace takes one dict at most");
  if (!arguments.positional.empty()) {
    const Dict* dict = arguments.positional[0].as_dict();
    if (dict == nullptr) throw Fault("namespace of other things than a dict is not supported");
    for (const auto& [key, value] : dict->items) {
      if (!key.is_string()) throw Fault("the names of a namespace must be str");
      if (key.text().size() > kMaxNameBytes) throw Fault("a name is too long");
      budget_.spend(1);
      set(key.text(), value);
    }
  }
  for (const auto& [name, value] : arguments.named) set(name, value);
  namespaces_.push_back(out);
  return Value(Value::Data(std::move(out)));
}

Value Renderer::compute_comparison(const Expression& expression, const ScopePtr& scope) {
  Value left = evaluate(*expression.items[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    const std::string& operation = expression.operators[i];
    Value right = evaluate(*expression.items[i + 1], scope);
    bool holds = false;
    if (operation == "==" || operation == "!=") {
      holds = equal(left, right, budget_) == (operation == "==");
    } else if (operation == "in" || operation == "not in") {
      holds = contains(right, left, budget_) == (operation == "in");
    } else {
      const int order = compare(left, right, budget_);
      holds = operation == "<" ? order < 0 : operation == "<=" ? order <= 0 : operation == ">" ? order > 0 : order >= 0;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Renderer::compute_joined(const Expression& expression, const ScopePtr& scope) {
  std::string out;
  for (const ExpressionPtr& item : expression.items) write(out, to_text(evaluate(*item, scope), budget_));
  return Value(std::move(out));
}

Value Renderer::compute_slice(const Expression& expression, const ScopePtr& scope) {
  Values parts;
  for (const ExpressionPtr& item : expression.items) parts.push_back(item ? evaluate(*item, scope) : Value());
  return slice_of(parts[0], parts[1], parts[2], parts[3], budget_);
}

Value Renderer::compute_list(const Expression& expression, SequenceKind kind, const ScopePtr& scope) {
  Values items;
  for (const ExpressionPtr& item : expression.items) items.push_back(evaluate(*item, scope));
  return Value::sequence(kind, std::move(items));
}

Value Renderer::compute_dict(const Expression& expression, const ScopePtr& scope) {
  Dict out;
  for (std::size_t i = 0; i < expression.items.size(); i += 2) {
    Value key = evaluate(*expression.items[i], scope);
    out.set(std::move(key), evaluate(*expression.items[i + 1], scope), budget_);
  }
  return Value::dict(std::move(out));
}

Arguments Renderer::arguments_of(const Expression& expression, const ScopePtr& scope) {
  Arguments out;
  for (std::size_t i = 1; i < expression.items.size(); ++i) {
    out.positional.push_back(evaluate(*expression.items[i], scope));
  }
  for (const auto& [name, value] : expression.named) {
    budget_.spend(name.size() / 16);  // dict() and namespace() keep the names
    out.named.emplace_back(name, evaluate(*value, scope));
  }
  return out;
}

Value Renderer::compute_call(const Expression& expression, const ScopePtr& scope) {
  const Value callee = evaluate(*expression.items[0], scope);
  const auto* function = callee.get<std::shared_ptr<const Callable>>();
  if (function == nullptr) {
    throw Fault(callee.is_undefined() ? callee.why_undefined()
                                      : fmt::format("a {} cannot be called", type_name(callee)));
  }
  return (**function)(arguments_of(expression, scope));
}

}  // namespace baton::jinja
