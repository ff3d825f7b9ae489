// SPDX-License-Identifier: Apache-2.0
// CharacterMachine: a deterministic machine over characters, for texts that several things are said of at once:
// patterns that must all match, texts that are excluded, a length.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/constrain/expression.h"

namespace baton::constrain {

/// Immutable. All that make one throw ConstraintError beyond 4,096 states.
class CharacterMachine {
 public:
  /// The texts of an expression without calls and members.
  explicit CharacterMachine(const ExpressionPtr& expression);
  /// `at_begin`: the texts are whole ones; otherwise what stands in front of them is unknown, and an expression that
  /// asks for it is refused.
  CharacterMachine(const ExpressionPtr& expression, bool at_begin);

  /// Those that a pattern is found in (search_expression).
  static CharacterMachine of_pattern(std::string_view regex);
  /// Whole numbers that `divisor` (> 0) divides.
  static CharacterMachine multiples(std::int64_t divisor);
  /// Numbers of at most `digits` (> 0) digits behind the point that are multiples of `divisor` (> 0) units of the last
  /// of them: of 0.25 with 25 and 2.
  static CharacterMachine decimal_multiples(std::int64_t divisor, int digits);

  CharacterMachine both(const CharacterMachine& other) const;
  CharacterMachine complement() const;

  bool empty() const { return states_.empty(); }
  /// The least and the greatest length of a text; kUnbounded: there is none. The machine must not be empty.
  std::pair<std::int32_t, std::int32_t> lengths() const;

  /// Its texts of `low` to `high` characters, inside of a JSON string. Throws ConstraintError if the lengths are too
  /// hard to count.
  ExpressionPtr in_json_string(std::int32_t low, std::int32_t high) const;
  /// The same as they are.
  ExpressionPtr expression(std::int32_t low = 0, std::int32_t high = kUnbounded) const;

 private:
  struct Way {
    CodePointSet characters;  // those of the ways of a state do not overlap
    std::int32_t target;
  };
  struct State {
    std::vector<Way> ways;
    bool ends = false;
  };
  class Determined;
  explicit CharacterMachine(std::vector<State> states);

  void drop_dead_ends();
  ExpressionPtr counted(std::int32_t low, std::int32_t high, bool in_json) const;
  std::vector<std::vector<GrammarExpression::Interval>> counts(std::int32_t low, std::int32_t high) const;

  std::vector<State> states_;  // the first is the beginning; none: no text at all
};

}  // namespace baton::constrain
