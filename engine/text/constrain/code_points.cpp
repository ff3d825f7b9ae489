// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/code_points.h"

#include <algorithm>
#include <string>

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

}  // namespace baton::constrain
