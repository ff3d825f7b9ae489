// SPDX-License-Identifier: Apache-2.0
// Which token of one text plays the part of which token of another: the cheapest way to edit one into the other, where
// replacing a token costs the distance of their sketches (engine/reuse/anchors/token_sketch.h) and leaving one out
// costs 1. Costs are added as whole numbers, so that every backend finds the same way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/both.h"

namespace baton {

struct Alignment {
  float distance = 0.0f;         // cost per token: 0 for equal texts, about 1 for unrelated ones
  std::vector<std::int32_t> to;  // [n] the counterpart of each token; of one that was added, that before it
  std::vector<float> mismatch;   // [n] what each token cost
};

/// A text and one that it is compared with: for each token the row of a matrix of sketches.
struct TextPair {
  std::span<const std::int32_t> text;   // [n]
  std::span<const std::int32_t> other;  // [m]
};

namespace editing {

inline constexpr std::int32_t kSketchWidth = 32;
inline constexpr std::int32_t kOne = 1 << 11;  // a cost of 1
inline constexpr std::int32_t kFar = 1 << 30;  // beyond any cost
inline constexpr std::int64_t kBand = 256;     // texts whose counterparts are further apart than this are not similar

/// What came last in the cheapest way to a cell. Of equally cheap ones replacing, then adding.
enum Move : std::uint8_t { kReplace, kAdd, kSkip };

/// Tokens [begin, end) of 0 .. m of the other text that `row` tokens of the text may have reached; at most 2 kBand.
struct Band {
  std::int64_t begin = 0, end = 0;
};
BATON_BOTH Band band(std::int64_t row, std::int64_t m) {
  const std::int64_t begin = row - kBand, last = row + kBand - 1;
  return {begin < 0 ? 0 : begin > m ? m : begin, (last < 0 ? 0 : last > m ? m : last) + 1};
}

BATON_BOTH std::int32_t cost_of(float distance) {
  return static_cast<std::int32_t>(distance * static_cast<float>(kOne) + 0.5f);
}
inline float in_ones(std::int64_t cost) { return static_cast<float>(cost) / static_cast<float>(kOne); }

}  // namespace editing

/// 0 for equal tokens, 1 for two that are as far from each other as any; a and b [kSketchWidth].
float token_distance(const float* a, const float* b);

/// Takes the tokens of a text one by one, as they are decoded. What the other text has behind the last counterpart
/// costs nothing. One thread at a time.
class Aligner {
 public:
  /// Sketches [m, kSketchWidth] of the other text; they must stay.
  explicit Aligner(std::span<const float> other);
  void push(const float* sketch);
  Alignment result() const;
  std::int64_t size() const { return rows_; }

 private:
  std::span<const float> other_;
  std::int64_t m_ = 0;
  std::int64_t rows_ = 0;
  std::vector<std::int32_t> cost_;  // [m + 1] of the newest row
  std::vector<std::int32_t> next_;
  std::vector<editing::Move> moves_;    // one row of the band for each token
  std::vector<std::size_t> begins_;     // of the rows in moves_
  std::vector<std::int32_t> replaced_;  // what replacing costs, beside moves_
};

}  // namespace baton
