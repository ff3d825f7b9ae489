// SPDX-License-Identifier: Apache-2.0
// Runs the tree of a chat template. One renderer renders once.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/parser.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {

/// Variables of a block. What a loop or a macro sets is gone when it ends.
class Scope {
 public:
  explicit Scope(std::shared_ptr<Scope> outer) : outer_(std::move(outer)) {}

  void set(const std::string& name, Value value, Budget& budget);
  /// Here or further out; nullptr: nowhere.
  const Value* find(const std::string& name, Budget& budget) const;
  void clear() { variables_.clear(); }

 private:
  std::shared_ptr<Scope> outer_;
  std::vector<std::pair<std::string, Value>> variables_;
};
using ScopePtr = std::shared_ptr<Scope>;

class Renderer {
 public:
  /// `local_seconds`: the time that strftime_now shows (ChatOptions::local_seconds).
  Renderer(const std::string& origin, const std::stop_token& stop, std::int64_t local_seconds = 0)
      : origin_(origin), budget_(stop), local_seconds_(local_seconds) {}
  ~Renderer();
  Renderer(const Renderer&) = delete;
  Renderer& operator=(const Renderer&) = delete;

  /// Throws ModelError with line and column, and Interrupted after a stop was requested.
  ChatText render(const Block& block, const std::vector<std::pair<std::string, Value>>& variables);
  /// The truth of an expression, in which what is undefined equals nothing; throws the same.
  bool holds(const Expression& expression, const std::vector<std::pair<std::string, Value>>& variables);

 private:
  enum class Flow : std::uint8_t { normal, break_, continue_ };

  ScopePtr scope_of(const std::vector<std::pair<std::string, Value>>& variables);

  // Statements append to `out`.
  Flow run(TextBuilder& out, const Block& block, const ScopePtr& scope);
  Flow run(TextBuilder& out, const Statement& statement, const ScopePtr& scope);
  Flow run_for(TextBuilder& out, const Statement& statement, const ScopePtr& scope);
  Flow run_loop(TextBuilder& out, const Statement& statement, const Value& value, const ScopePtr& scope);
  void run_macro_definition(const Statement& statement, const ScopePtr& scope);
  void run_call(TextBuilder& out, const Statement& statement, const ScopePtr& scope);
  Value call_macro(const Statement& macro, const ScopePtr& defined_in, const Arguments& arguments);
  Value filtered_block(const Statement& statement, const ScopePtr& scope);
  void assign(const Statement& statement, Value value, const ScopePtr& scope);

  Value evaluate(const Expression& expression, const ScopePtr& scope);
  Value compute(const Expression& expression, const ScopePtr& scope);
  Value look_up(const std::string& name, const ScopePtr& scope);
  Value compute_comparison(const Expression& expression, const ScopePtr& scope);
  Value compute_joined(const Expression& expression, const ScopePtr& scope);
  Value compute_call(const Expression& expression, const ScopePtr& scope, const Value* caller = nullptr);
  Value compute_slice(const Expression& expression, const ScopePtr& scope);
  Value compute_list(const Expression& expression, SequenceKind kind, const ScopePtr& scope);
  Value compute_dict(const Expression& expression, const ScopePtr& scope);
  Arguments arguments_of(const Expression& expression, const ScopePtr& scope);
  Value make_namespace(const Arguments& arguments);

  class Deeper;  // one more statement or expression inside the others

  /// A loop with "recursive" that is under way.
  struct OpenLoop {
    const Loop* loop;
    const Statement& statement;
    ScopePtr scope;
  };

  const std::string& origin_;
  Budget budget_;
  std::int64_t local_seconds_;
  int depth_ = 0;
  bool undefined_equals_none_ = false;
  // Namespaces and macros can hold each other in a circle: the renderer empties them when it ends.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<ScopePtr> scopes_with_macros_;
  std::vector<OpenLoop> open_loops_;
};

}  // namespace baton::jinja
