// SPDX-License-Identifier: Apache-2.0
// GrammarExpression: the one form that regular expressions, lists of texts, JSON Schemas and GBNF are read into, and
// that a Grammar is made of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/constrain/code_points.h"

namespace baton::constrain {

struct GrammarExpression;
/// Immutable; one expression may be a part of several.
using ExpressionPtr = std::shared_ptr<const GrammarExpression>;

inline constexpr std::int32_t kUnbounded = -1;

struct GrammarExpression {
  enum class Kind : std::uint8_t {
    text,        // exactly `text`
    characters,  // one of `characters`
    sequence,    // all of `parts`; of none: the empty text
    choice,      // one of `parts`; of none: nothing at all
    repeat,      // parts[0], `low` to `high` times
    members,     // `parts` in order, with `between` between them; the optional ones may be left out
    call,        // the rule with index `rule`
  };
  Kind kind = Kind::sequence;
  std::string text;
  CodePointSet characters;
  std::vector<ExpressionPtr> parts;
  std::int32_t low = 0, high = 0;
  std::int32_t rule = 0;
  std::vector<bool> optional;  // of members: one for each part
  ExpressionPtr between;       // of members
  ExpressionPtr more;          // of members: what may follow them, any number of times; null: nothing
};

ExpressionPtr text(std::string_view bytes);
ExpressionPtr characters(CodePointSet set);
ExpressionPtr sequence(std::vector<ExpressionPtr> parts);
ExpressionPtr choice(std::vector<ExpressionPtr> parts);
ExpressionPtr repeat(ExpressionPtr part, std::int32_t low, std::int32_t high);
ExpressionPtr call(std::int32_t rule);
inline ExpressionPtr maybe(ExpressionPtr part) { return repeat(std::move(part), 0, 1); }

/// The members of an object: each optional one may be left out, `between` stands between two that are there.
struct Members {
  std::vector<ExpressionPtr> parts;
  std::vector<bool> optional;
  ExpressionPtr between;
  ExpressionPtr more;  // null: there are no others
};
ExpressionPtr members(Members all);

/// What stands inside of a JSON string for a text of `expression`, which has no calls: each character in one way,
/// either as it is or as its shortest escape.
ExpressionPtr in_json_string(const ExpressionPtr& expression);

/// One rule of a grammar. The first rule is the whole text.
struct Rule {
  std::string name;  // for messages
  ExpressionPtr body;
};

}  // namespace baton::constrain
