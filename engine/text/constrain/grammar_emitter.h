// SPDX-License-Identifier: Apache-2.0
// GrammarEmitter: expressions to the nodes of a Grammar (Thompson's construction), within limits of size.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/text/constrain/grammar.h"

namespace baton::constrain {

class GrammarEmitter {
 public:
  explicit GrammarEmitter(std::vector<Grammar::Node>& nodes) : nodes_(nodes) {}

  /// Adds the nodes of a rule and returns its first. Throws ConstraintError when the grammar becomes too large.
  std::int32_t rule(const GrammarExpression& body);

 private:
  /// Each adds what leads from `from` to the node that it returns, and no edge back to `from`.
  std::int32_t emit(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_text(std::string_view bytes, std::int32_t from);
  std::int32_t emit_characters(const CodePointSet& set, std::int32_t from);
  std::int32_t emit_repeat(const GrammarExpression& expression, std::int32_t from);
  std::int32_t emit_members(const GrammarExpression& expression, std::int32_t from);

  std::int32_t add_node();
  Grammar::Node& at(std::int32_t index) { return nodes_[static_cast<std::size_t>(index)]; }
  void add_empty(std::int32_t from, std::int32_t to) { at(from).empties.push_back(to); }

  std::vector<Grammar::Node>& nodes_;
  std::size_t steps_ = 0;
};

}  // namespace baton::constrain
