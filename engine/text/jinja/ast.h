// SPDX-License-Identifier: Apache-2.0
// The tree of a chat template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/value.h"

namespace baton::jinja {

enum class ExpressionKind : std::uint8_t {
  literal,
  name,         // text
  member,       // [object], text
  subscript,    // [object, index]
  slice,        // [object, from, to, step], each but the object may be missing
  call,         // [callee, arguments...] and named
  filter,       // [value, arguments...] and named; text
  test,         // [value, arguments...] and named; text
  unary,        // [operand]; text is "not", "-" or "+"
  binary,       // [left, right]; text is an operator of arithmetic
  logic,        // [left, right]; text is "and" or "or"
  comparison,   // [first, others...]; operators
  joined,       // [parts...] of a ~ b ~ c
  conditional,  // [condition, value, otherwise]; otherwise may be missing
  list,
  tuple,
  dict,  // [key, value, key, value, ...]
};

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  Place place;
  std::string text;
  Value literal;
  std::vector<ExpressionPtr> items;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  std::vector<std::string> operators;
  int depth = 1;  // of the tree below
};

enum class StatementKind : std::uint8_t {
  data,          // text
  print,         // value
  if_,           // value, body, otherwise
  for_,          // targets, value, condition (may be missing), body, otherwise
  set,           // targets, value
  set_block,     // targets, body, value: its filters, around the name kBlockText (may be missing)
  macro,         // text, parameters, body
  with,          // parameters, body
  scope,         // body
  filter_block,  // value: filters around the name kBlockText; body
  break_,
  continue_,
};

/// The name under which the filters of a block find the text of the block. No template can write it.
inline constexpr const char* kBlockText = " block";

struct Statement;
using StatementPtr = std::unique_ptr<const Statement>;
using Block = std::vector<StatementPtr>;

struct Target {
  std::string name;
  std::string member;  // of a namespace: set ns.member = ...
};

struct Statement {
  StatementKind kind = StatementKind::data;
  Place place;
  std::string text;
  ExpressionPtr value;
  ExpressionPtr condition;
  std::vector<Target> targets;
  bool unpacks = false;  // the value is a sequence with one element for each target
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with defaults, which may be missing
  Block body;
  Block otherwise;
};

}  // namespace baton::jinja
