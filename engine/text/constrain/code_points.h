// SPDX-License-Identifier: Apache-2.0
// Sets of Unicode characters, and the UTF-8 byte ranges that stand for them.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace baton::constrain {

struct CodePointRange {
  char32_t low = 0, high = 0;  // inclusive
};

/// A set of code points as sorted ranges that do not touch. Surrogates are never members.
class CodePointSet {
 public:
  CodePointSet() = default;
  CodePointSet(std::initializer_list<CodePointRange> ranges);

  void add(CodePointRange range);
  void add(const CodePointSet& other);
  CodePointSet complement() const;
  CodePointSet without(const CodePointSet& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const { return ranges_; }

 private:
  std::vector<CodePointRange> ranges_;
};

struct ByteRange {
  std::uint8_t low = 0, high = 0;  // inclusive
  auto operator<=>(const ByteRange&) const = default;
};

/// 1 to 4 byte ranges, one behind the other.
struct ByteRanges {
  std::array<ByteRange, 4> bytes;
  int count = 0;
};

/// The UTF-8 encodings of exactly the characters of the set.
std::vector<ByteRanges> utf8_ranges(const CodePointSet& characters);

}  // namespace baton::constrain
