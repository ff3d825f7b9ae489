// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "engine/base/utf8.h"

namespace baton::constrain {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodePointRange kSurrogates{0xD800, 0xDFFF};
constexpr char32_t kLastOfLength[] = {0x7F, 0x7FF, 0xFFFF};  // in 1, 2 and 3 bytes

/// Cuts a range where the number of bytes changes, and where the bytes behind a common beginning are not all of them.
void split(CodePointRange range, std::vector<ByteRanges>& out) {
  const auto [low, high] = range;
  for (const char32_t last : kLastOfLength) {
    if (low > last || high <= last) continue;
    split({low, last}, out);
    return split({last + 1, high}, out);
  }
  for (int bits = 6; bits <= 18 && high > 0x7F; bits += 6) {
    const char32_t tail = (char32_t{1} << bits) - 1;
    if ((low & ~tail) == (high & ~tail)) break;
    if ((low & tail) != 0) {
      split({low, low | tail}, out);
      return split({(low | tail) + 1, high}, out);
    }
    if ((high & tail) != tail) {
      split({low, (high & ~tail) - 1}, out);
      return split({high & ~tail, high}, out);
    }
  }
  std::string first, last;
  utf8::append(first, low);
  utf8::append(last, high);
  ByteRanges& ranges = out.emplace_back();
  ranges.count = static_cast<int>(first.size());
  for (std::size_t i = 0; i < first.size(); ++i)
    ranges.bytes[i] = {static_cast<std::uint8_t>(first[i]), static_cast<std::uint8_t>(last[i])};
}

}  // namespace

CodePointSet::CodePointSet(std::initializer_list<CodePointRange> ranges) {
  for (const CodePointRange& range : ranges) add(range);
}

void CodePointSet::add(CodePointRange range) {
  range.high = std::min(range.high, kLast);
  if (range.low < kSurrogates.low && range.high >= kSurrogates.low) {
    add({range.low, kSurrogates.low - 1});
    range.low = kSurrogates.high + 1;
  } else if (range.low >= kSurrogates.low && range.low <= kSurrogates.high) {
    range.low = kSurrogates.high + 1;
  }
  if (range.low > range.high) return;
  const auto first = std::lower_bound(ranges_.begin(), ranges_.end(), range.low,
                                      [](const CodePointRange& one, char32_t low) { return one.high + 1 < low; });
  auto last = first;
  for (; last != ranges_.end() && last->low <= range.high + 1; ++last)
    range = {std::min(range.low, last->low), std::max(range.high, last->high)};
  ranges_.insert(ranges_.erase(first, last), range);
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& range : other.ranges_) add(range);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet out;
  char32_t from = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.low > from) out.add({from, range.low - 1});
    from = range.high + 1;
  }
  if (from <= kLast) out.add({from, kLast});
  return out;
}

CodePointSet CodePointSet::without(const CodePointSet& other) const {
  CodePointSet rest = complement();  // the complement of (not this, or other)
  rest.add(other);
  return rest.complement();
}

bool CodePointSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& range) { return range.low <= c && c <= range.high; });
}

std::vector<ByteRanges> utf8_ranges(const CodePointSet& characters) {
  std::vector<ByteRanges> out;
  for (const CodePointRange& range : characters.ranges()) split(range, out);
  return out;
}

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

/// Control characters without a short escape are written \u00XX only if nothing else is meant, so that a model that
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
