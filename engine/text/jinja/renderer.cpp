// SPDX-License-Identifier: Apache-2.0
// The renderer's guard of the thread's stack.
#include "engine/text/jinja/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/text/jinja/library.h"

namespace baton::jinja {

/// Counts the statements and expressions that are under way inside each other, those of macros included. Throws Fault
/// when there are too many.
class Renderer::Deeper {
 public:
  explicit Deeper(int& depth);
  ~Deeper() { --depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  // A level takes up to 700 bytes of stack, and a thread has 512 KiB at least. Published templates stay below 60.
  static constexpr int kMaxDepth = 500;

  int& depth_;
};

Renderer::Deeper::Deeper(int& depth) : depth_(depth) {
  if (++depth_ > kMaxDepth) {
    --depth_;
    throw Fault("the template calls itself too deeply");
  }
}

void Scope::set(const std::string& name, Value value, Budget& budget) {
  budget.spend(variables_.size() / 8);
  for (auto& [known, old] : variables_) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables_.emplace_back(name, std::move(value));
}

const Value* Scope::find(const std::string& name, Budget& budget) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer_.get()) {
    budget.spend(scope->variables_.size() / 8);
    for (const auto& [known, value] : scope->variables_) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

Renderer::~Renderer() {
  for (const auto& members : namespaces_) members->members.clear();
  for (const auto& scope : scopes_with_macros_) scope->clear();
}

ChatText Renderer::render(const Block& block, const std::vector<std::pair<std::string, Value>>& variables) {
  TextBuilder out;
  run(out, block, scope_of(variables));
  return out.take();
}

bool Renderer::holds(const Expression& expression, const std::vector<std::pair<std::string, Value>>& variables) {
  undefined_equals_none_ = true;
  return truth(evaluate(expression, scope_of(variables)));
}

ScopePtr Renderer::scope_of(const std::vector<std::pair<std::string, Value>>& variables) {
  auto scope = std::make_shared<Scope>(nullptr);
  for (const auto& [name, value] : variables) scope->set(name, value, budget_);
  return scope;
}

Renderer::Flow Renderer::run(TextBuilder& out, const Block& block, const ScopePtr& scope) {
  for (const StatementPtr& statement : block) {
    Flow flow = Flow::normal;
    try {
      const Deeper deeper(depth_);
      budget_.spend(1);
      flow = run(out, *statement, scope);
    } catch (const Fault& fault) {
      fail(origin_, statement->place, fault.what());
    }
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Renderer::Flow Renderer::run(TextBuilder& out, const Statement& statement, const ScopePtr& scope) {
  switch (statement.kind) {
    case StatementKind::data:
      out.add(statement.text, budget_);
      break;
    case StatementKind::print:
      out.add_value(evaluate(*statement.value, scope), budget_);
      break;
    case StatementKind::if_:
      return run(out, truth(evaluate(*statement.value, scope)) ? statement.body : statement.otherwise, scope);
    case StatementKind::for_:
      return run_for(out, statement, scope);
    case StatementKind::set:
      assign(statement, evaluate(*statement.value, scope), scope);
      break;
    case StatementKind::set_block:
      assign(statement, filtered_block(statement, scope), scope);
      break;
    case StatementKind::filter_block:
      out.add_value(filtered_block(statement, scope), budget_);
      break;
    case StatementKind::macro:
      run_macro_definition(statement, scope);
      break;
    case StatementKind::call:
      run_call(out, statement, scope);
      break;
    case StatementKind::with: {
      const auto inner = std::make_shared<Scope>(scope);
      for (const auto& [name, value] : statement.parameters) inner->set(name, evaluate(*value, scope), budget_);
      return run(out, statement.body, inner);
    }
    case StatementKind::scope:
      return run(out, statement.body, std::make_shared<Scope>(scope));
    case StatementKind::break_:
      return Flow::break_;
    case StatementKind::continue_:
      return Flow::continue_;
  }
  return Flow::normal;
}

Renderer::Flow Renderer::run_for(TextBuilder& out, const Statement& statement, const ScopePtr& scope) {
  return run_loop(out, statement, evaluate(*statement.value, scope), scope);
}

Renderer::Flow Renderer::run_loop(TextBuilder& out, const Statement& statement, const Value& value,
                                  const ScopePtr& scope) {
  Values items = elements(value, budget_);
  if (statement.condition) {
    Values kept;
    for (Value& item : items) {
      const auto inner = std::make_shared<Scope>(scope);
      assign(statement, item, inner);
      if (truth(evaluate(*statement.condition, inner))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return run(out, statement.otherwise, std::make_shared<Scope>(scope));
  const auto loop = std::make_shared<Loop>(std::move(items));
  const Value loop_value{Value::Data(std::shared_ptr<const Loop>(loop))};
  if (statement.is_recursive) {
    loop->depth +=
        open_loops_.empty() || &open_loops_.back().statement != &statement ? 0 : open_loops_.back().loop->depth;
    open_loops_.push_back({loop.get(), statement, scope});
  }
  for (loop->index = 0; loop->index < loop->items.size(); ++loop->index) {
    budget_.spend(1);
    const auto inner = std::make_shared<Scope>(scope);
    inner->set("loop", loop_value, budget_);
    assign(statement, loop->items[loop->index], inner);
    if (run(out, statement.body, inner) == Flow::break_) break;
  }
  if (statement.is_recursive) open_loops_.pop_back();
  return Flow::normal;
}

void Renderer::assign(const Statement& statement, Value value, const ScopePtr& scope) {
  Values values;
  if (statement.unpacks) {
    values = elements(value, budget_);
    if (values.size() != statement.targets.size()) {
      throw Fault(fmt::format("cannot unpack {} values into {} names", values.size(), statement.targets.size()));
    }
  } else {
    values.push_back(std::move(value));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Target& target = statement.targets[i];
    if (target.member.empty()) {
      scope->set(target.name, std::move(values[i]), budget_);
      continue;
    }
    const Value owner = look_up(target.name, scope);
    const auto* members = owner.get<std::shared_ptr<Namespace>>();
    if (members == nullptr) throw Fault(fmt::format("'{}' cannot be changed; expected a namespace", target.name));
    if (target.member.starts_with('_')) throw Fault(fmt::format("the member '{}' is not safe", target.member));
    (*members)->members.insert_or_assign(target.member, std::move(values[i]));
  }
}

Value Renderer::filtered_block(const Statement& statement, const ScopePtr& scope) {
  TextBuilder out;
  run(out, statement.body, std::make_shared<Scope>(scope));
  Value text(out.take(), false);
  if (!statement.value) return text;
  const auto inner = std::make_shared<Scope>(scope);
  inner->set(kBlockText, std::move(text), budget_);
  return evaluate(*statement.value, inner);
}

void Renderer::run_macro_definition(const Statement& statement, const ScopePtr& scope) {
  scopes_with_macros_.push_back(scope);
  // The scope is cleared when the renderer ends, which breaks the reference cycle of scope and macro.
  const auto call = [this, &statement, scope](const Value&, const Arguments& arguments) {
    return call_macro(statement, scope, arguments);
  };
  scope->set(statement.text, callable(statement.text, call), budget_);
}

void Renderer::run_call(TextBuilder& out, const Statement& statement, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  run_macro_definition(statement, inner);
  const Value caller = *inner->find(statement.text, budget_);
  out.add_value(compute_call(*statement.value, scope, &caller), budget_);
}

namespace {

/// What a macro is given beyond its parameters. Throws Fault if it does not take that.
void set_other_arguments(const Statement& macro, const Arguments& arguments, Scope& scope, Budget& budget) {
  const auto& parameters = macro.parameters;
  const auto& positional = arguments.positional;
  if (positional.size() > parameters.size() && !macro.takes_more)
    throw Fault(fmt::format("the macro '{}' takes {} arguments", macro.text, parameters.size()));
  budget.spend(arguments.named.size() * parameters.size() / 8);
  Value caller = Value::undefined("the macro was not called by a call block");
  Dict more;
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find_if(parameters.begin(), parameters.end(), [&](const auto& x) { return x.first == name; });
    if (it != parameters.end()) {
      if (static_cast<std::size_t>(it - parameters.begin()) < positional.size())
        throw Fault(fmt::format("the macro '{}' was given '{}' twice", macro.text, name));
    } else if (name == "caller" && macro.takes_caller) {
      caller = value;
    } else if (macro.takes_more_named) {
      more.set(Value(name), value, budget);
    } else {
      throw Fault(fmt::format("the macro '{}' has no argument '{}'", macro.text, name));
    }
  }
  if (macro.takes_caller) scope.set("caller", std::move(caller), budget);
  if (macro.takes_more_named) scope.set("kwargs", Value::dict(std::move(more)), budget);
  if (!macro.takes_more) return;
  const auto begin = positional.begin() + static_cast<std::ptrdiff_t>(std::min(positional.size(), parameters.size()));
  scope.set("varargs", Value::sequence(SequenceKind::tuple, Values(begin, positional.end())), budget);
}

}  // namespace

Value Renderer::call_macro(const Statement& macro, const ScopePtr& defined_in, const Arguments& arguments) {
  const auto& parameters = macro.parameters;
  const auto scope = std::make_shared<Scope>(defined_in);
  set_other_arguments(macro, arguments, *scope, budget_);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, fallback] = parameters[i];
    const Value* named = arguments.named_value(name);
    scope->set(name,
               i < arguments.positional.size() ? arguments.positional[i]
               : named                         ? *named
               : fallback                      ? evaluate(*fallback, scope)
                                               : Value::undefined(fmt::format("the argument '{}' was not given", name)),
               budget_);
  }
  TextBuilder out;
  run(out, macro.body, scope);
  return Value(out.take(), false);
}

// The half of the renderer that evaluates expressions.

Value Renderer::evaluate(const Expression& expression, const ScopePtr& scope) {
  try {
    const Deeper deeper(depth_);
    budget_.spend(1);
    Value value = compute(expression, scope);
    if (undefined_equals_none_ && value.is_undefined()) {
      return Value(Value::Data(Undefined{value.get<Undefined>()->what, true}));  // which equals no value
    }
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
  return global_function(name, local_seconds_, budget_);
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
  TextBuilder out;
  for (const ExpressionPtr& item : expression.items) out.add_value(evaluate(*item, scope), budget_);
  return Value(out.take(), false);
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
  if (expression.spread) {
    Values more = elements(evaluate(*expression.spread, scope), budget_);
    std::move(more.begin(), more.end(), std::back_inserter(out.positional));
  }
  if (!expression.spread_named) return out;
  const Value more = evaluate(*expression.spread_named, scope);
  if (!more.as_dict()) throw Fault(fmt::format("** needs a dict, not a {}", type_name(more)));
  for (const auto& [key, value] : more.as_dict()->items) {
    budget_.spend(1 + out.named.size() / 8);
    if (!key.is_string() || key.text().size() > kMaxNameBytes) throw Fault("** needs a dict with short names as keys");
    if (out.named_value(key.text())) throw Fault(fmt::format("the argument '{}' is given twice", key.text()));
    out.named.emplace_back(key.text(), value);
  }
  return out;
}

Value Renderer::compute_call(const Expression& expression, const ScopePtr& scope, const Value* caller) {
  const Value callee = evaluate(*expression.items[0], scope);
  Arguments arguments = arguments_of(expression, scope);
  if (caller) arguments.named.emplace_back("caller", *caller);
  if (const auto* loop = callee.get<std::shared_ptr<const Loop>>()) {
    const auto open =
        std::find_if(open_loops_.begin(), open_loops_.end(), [&](const auto& x) { return x.loop == loop->get(); });
    if (open == open_loops_.end()) throw Fault("this loop is not recursive");
    const Parameters given("loop", arguments, {"iterable"});
    const OpenLoop one = *open;
    TextBuilder out;
    run_loop(out, one.statement, given.required(0), one.scope);
    return Value(out.take(), false);
  }
  const auto* function = callee.get<std::shared_ptr<const Callable>>();
  if (function == nullptr) {
    throw Fault(callee.is_undefined() ? why_undefined(callee)
                                      : fmt::format("a {} cannot be called", type_name(callee)));
  }
  return (**function)(arguments);
}

}  // namespace baton::jinja
