// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/grammar_emitter.h"

#include <fmt/format.h>

#include <map>

namespace baton::constrain {
namespace {

constexpr std::size_t kMaxNodes = 1u << 16;
constexpr std::size_t kMaxSteps = 1u << 20;  // repetitions of what adds no node count too

}  // namespace

std::int32_t GrammarEmitter::add_node() {
  if (nodes_.size() == kMaxNodes)
    throw ConstraintError(
        fmt::format("it is too large: expected at most {} states, with its repetitions written out", kMaxNodes));
  nodes_.emplace_back();
  return static_cast<std::int32_t>(nodes_.size() - 1);
}

std::int32_t GrammarEmitter::rule(const GrammarExpression& body) {
  const std::int32_t start = add_node();
  at(emit(body, start)).ends = true;
  return start;
}

std::int32_t GrammarEmitter::emit(const GrammarExpression& expression, std::int32_t from) {
  using Kind = GrammarExpression::Kind;
  if (++steps_ > kMaxSteps) throw ConstraintError("it is too large with its repetitions written out");
  switch (expression.kind) {
    case Kind::text:
      return emit_text(expression.text, from);
    case Kind::characters:
      return emit_characters(expression.characters, from);
    case Kind::sequence:
      for (const ExpressionPtr& part : expression.parts) from = emit(*part, from);
      return from;
    case Kind::choice: {
      const std::int32_t end = add_node();
      for (const ExpressionPtr& part : expression.parts) add_empty(emit(*part, from), end);
      return end;
    }
    case Kind::repeat:
      return emit_repeat(expression, from);
    case Kind::members:
      return emit_members(expression, from);
    case Kind::call: {
      const std::int32_t end = add_node();
      at(from).calls.push_back({expression.rule, end});
      return end;
    }
  }
  return from;
}

std::int32_t GrammarEmitter::emit_text(std::string_view bytes, std::int32_t from) {
  for (const char byte : bytes) {
    const std::int32_t next = add_node();
    const auto value = static_cast<std::uint8_t>(byte);
    at(from).edges.push_back({value, value, next});
    from = next;
  }
  return from;
}

/// Sequences that end alike share the nodes of their ends.
std::int32_t GrammarEmitter::emit_characters(const CodePointSet& set, std::int32_t from) {
  const std::int32_t end = add_node();
  std::map<std::vector<ByteRange>, std::int32_t> behind{{{}, end}};
  for (const ByteRanges& ranges : utf8_ranges(set)) {
    std::int32_t target = end;
    std::vector<ByteRange> rest;
    for (int i = ranges.count - 1; i > 0; --i) {
      const ByteRange range = ranges.bytes[static_cast<std::size_t>(i)];
      rest.push_back(range);
      const auto [found, added] = behind.try_emplace(rest, 0);
      if (added) {
        found->second = add_node();
        at(found->second).edges.push_back({range.low, range.high, target});
      }
      target = found->second;
    }
    at(from).edges.push_back({ranges.bytes[0].low, ranges.bytes[0].high, target});
  }
  return end;
}

std::int32_t GrammarEmitter::emit_repeat(const GrammarExpression& expression, std::int32_t from) {
  const GrammarExpression& part = *expression.parts[0];
  for (std::int32_t i = 0; i < expression.low; ++i) from = emit(part, from);
  const std::int32_t end = add_node();
  if (expression.high == kUnbounded) {
    add_empty(from, end);
    add_empty(emit(part, end), end);
    return end;
  }
  for (std::int32_t i = expression.low; i < expression.high; ++i) {
    add_empty(from, end);
    from = emit(part, from);
  }
  add_empty(from, end);
  return end;
}

/// Two chains side by side: before and behind the first member that is there. A member stands once, behind the
/// separator or not.
std::int32_t GrammarEmitter::emit_members(const GrammarExpression& expression, std::int32_t from) {
  std::int32_t none = from, some = add_node();
  for (std::size_t i = 0; i < expression.parts.size(); ++i) {
    const std::int32_t member = add_node();
    if (none >= 0) add_empty(none, member);
    add_empty(emit(*expression.between, some), member);
    const std::int32_t next = add_node();
    add_empty(emit(*expression.parts[i], member), next);
    if (expression.optional[i])
      add_empty(some, next);
    else
      none = -1;
    some = next;
  }
  if (expression.more) {
    const std::int32_t loop = add_node(), member = add_node();
    add_empty(some, loop);
    add_empty(emit(*expression.between, loop), member);
    if (none >= 0) add_empty(none, member);
    add_empty(emit(*expression.more, member), loop);
    some = loop;
  }
  const std::int32_t end = add_node();
  add_empty(some, end);
  if (none >= 0) add_empty(none, end);
  return end;
}

}  // namespace baton::constrain
