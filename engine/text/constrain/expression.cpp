// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/expression.h"

#include <fmt/format.h>

#include <utility>

#include "engine/base/utf8.h"

namespace baton::constrain {
namespace {

using Kind = GrammarExpression::Kind;

ExpressionPtr make(GrammarExpression expression) {
  return std::make_shared<const GrammarExpression>(std::move(expression));
}

struct Escape {
  char32_t character, letter;  // the letter stands behind a backslash
};
constexpr Escape kEscapes[] = {{U'"', U'"'},  {U'\\', U'\\'}, {U'\n', U'n'}, {U'\t', U't'},
                               {U'\r', U'r'}, {U'\b', U'b'},  {U'\f', U'f'}};

/// Control characters without a short escape are written \u00XX only where nothing else is meant, so that a model that
/// begins another \u is not led to one of them.
ExpressionPtr escaped(const CodePointSet& set) {
  static const CodePointSet& always = *new CodePointSet{{0, 0x1F}, {U'"', U'"'}, {U'\\', U'\\'}};
  const CodePointSet plain = set.without(always);
  std::vector<ExpressionPtr> ways;
  if (!plain.empty()) ways.push_back(characters(plain));
  CodePointSet letters;
  for (const Escape& escape : kEscapes) {
    if (set.contains(escape.character)) letters.add({escape.letter, escape.letter});
  }
  if (!letters.empty()) ways.push_back(sequence({text("\\"), characters(letters)}));
  if (ways.empty()) {
    for (char32_t c = 0; c <= 0x1F; ++c) {
      if (set.contains(c)) ways.push_back(text(fmt::format("\\u{:04x}", static_cast<unsigned>(c))));
    }
  }
  return ways.size() == 1 ? ways[0] : choice(std::move(ways));
}

ExpressionPtr escaped(std::string_view bytes) {
  std::vector<ExpressionPtr> parts;
  for (std::size_t at = 0; at < bytes.size();) {
    const utf8::CodePoint c = utf8::at(bytes, at);
    parts.push_back(escaped(CodePointSet{{c.value, c.value}}));
    at += c.bytes;
  }
  return sequence(std::move(parts));
}

}  // namespace

ExpressionPtr text(std::string_view bytes) {
  GrammarExpression out;
  out.kind = Kind::text;
  out.text = bytes;
  return make(std::move(out));
}

ExpressionPtr characters(CodePointSet set) {
  GrammarExpression out;
  out.kind = Kind::characters;
  out.characters = std::move(set);
  return make(std::move(out));
}

ExpressionPtr sequence(std::vector<ExpressionPtr> parts) {
  GrammarExpression out;
  out.kind = Kind::sequence;
  out.parts = std::move(parts);
  return make(std::move(out));
}

ExpressionPtr choice(std::vector<ExpressionPtr> parts) {
  GrammarExpression out;
  out.kind = Kind::choice;
  out.parts = std::move(parts);
  return make(std::move(out));
}

ExpressionPtr repeat(ExpressionPtr part, std::int32_t low, std::int32_t high) {
  GrammarExpression out;
  out.kind = Kind::repeat;
  out.parts.push_back(std::move(part));
  out.low = low;
  out.high = high;
  return make(std::move(out));
}

ExpressionPtr call(std::int32_t rule) {
  GrammarExpression out;
  out.kind = Kind::call;
  out.rule = rule;
  return make(std::move(out));
}

ExpressionPtr members(Members all) {
  GrammarExpression out;
  out.kind = Kind::members;
  out.parts = std::move(all.parts);
  out.optional = std::move(all.optional);
  out.between = std::move(all.between);
  out.more = std::move(all.more);
  return make(std::move(out));
}

ExpressionPtr in_json_string(const ExpressionPtr& expression) {
  if (expression->kind == Kind::text) return escaped(expression->text);
  if (expression->kind == Kind::characters) return escaped(expression->characters);
  GrammarExpression out = *expression;
  for (ExpressionPtr& part : out.parts) part = in_json_string(part);
  return make(std::move(out));
}

}  // namespace baton::constrain
