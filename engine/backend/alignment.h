// SPDX-License-Identifier: Apache-2.0
// The alignment of two texts by edit distance: which token of one corresponds to which token of the other. Replacing a
// token costs the distance of the two tokens' sketches (engine/reuse/anchors/token_sketch.h); inserting or deleting one
// costs 1. Costs are added as integers, so that every backend finds the same alignment.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/both.h"

namespace baton {

struct Alignment {
  float distance = 0.0f;         // cost per token: 0 for equal texts, about 1 for unrelated texts
  std::vector<std::int32_t> to;  // [n] the counterpart of each token; an added token has its predecessor's
  std::vector<float> mismatch;   // [n] the cost of each token
};

/// A text and the text that it is compared with; each token is given as its row in a matrix of sketches.
struct TextPair {
  std::span<const std::int32_t> text;   // [n]
  std::span<const std::int32_t> other;  // [m]
};

namespace editing {

inline constexpr std::int32_t kSketchWidth = 32;
inline constexpr std::int32_t kOne = 1 << 11;  // a cost of 1
inline constexpr std::int32_t kFar = 1 << 30;  // greater than any cost
inline constexpr std::int64_t kBand = 256;     // texts whose counterparts are further apart than this are not similar

/// The last edit of the cheapest path to a cell. Among equally cheap edits, replacing is preferred, then adding.
enum Move : std::uint8_t { kReplace, kAdd, kSkip };

/// The columns [begin, end), out of 0 .. m, that are computed in row `row` of the cost matrix; at most 2 kBand.
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

/// Returns the distance of two sketches, a and b [kSketchWidth]: 0 for equal tokens, at most 1.
float token_distance(const float* a, const float* b);

/// Aligns a text that grows token by token, as it is decoded, with another text. Tokens of the other text behind the
/// last counterpart cost nothing. Threads: one caller at a time.
class Aligner {
 public:
  /// `other`: sketches [m, kSketchWidth] of the other text; the memory must outlive the aligner.
  explicit Aligner(std::span<const float> other);
  void push(const float* sketch);
  Alignment result() const;
  std::int64_t size() const { return rows_; }

 private:
  std::span<const float> other_;
  std::int64_t m_ = 0;
  std::int64_t rows_ = 0;
  std::vector<std::int32_t> cost_;  // [m + 1] costs of the newest row
  std::vector<std::int32_t> next_;
  std::vector<editing::Move> moves_;    // one row of the band per token
  std::vector<std::size_t> begins_;     // where each row begins in moves_
  std::vector<std::int32_t> replaced_;  // the cost of replacing, for each of moves_
};

}  // namespace baton
