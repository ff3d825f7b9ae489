// SPDX-License-Identifier: Apache-2.0
// Sampling of the next token from logits: greedy, temperature, top-k, top-p, min-p. Everything that decides the token
// is exact in any order of summation, so the host and every device choose the same token.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/random.h"

namespace baton {

/// How one token is chosen. The filters apply in the order of Transformers: temperature, top-k, top-p, min-p.
struct TokenChoice {
  double uniform = 0.0;      // in [0, 1): selects the candidate that is drawn
  float temperature = 0.0f;  // 0: greedy
  std::int32_t top_k = 0;    // 0: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  std::int32_t entropy = 0;  // not 0: compute the entropy
  std::int32_t unused = 0;   // no padding: arrays of it are compared as bytes
};

struct ChosenToken {
  std::int32_t id = -1;  // -1: no logit was finite
  float entropy = 0.0f;  // nats, of softmax(logits), see entropy_of
};

/// A weight of 1. The sum over 2^24 ids stays below 2^64.
inline constexpr std::uint64_t kUnitWeight = std::uint64_t{1} << 39;

/// An entropy ignores ids less likely than e^kEntropyReach times the likeliest id.
inline constexpr float kEntropyReach = -18.0f;

/// Returns e^x for x <= 0 in units of 1 / kUnitWeight; ids whose weight rounds down to 0 are never drawn. Sums of such
/// weights are exact in any order. Only +, * and bit operations are used: exp differs between libraries, and then the
/// same seed would not give the same text on every machine.
BATON_BOTH std::uint64_t weight_of(float logit) {
  if (!(logit > -28.0f)) return 0;
  const double inverse_factorial[] = {1.0,       1.0,       1.0 / 2,    1.0 / 6,    1.0 / 24,
                                      1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320};
  const double x = logit;
  const auto n = static_cast<std::int64_t>(x * 1.4426950408889634 - 0.5);  // x / ln 2 to the nearest, as x <= 0
  const double r = x - static_cast<double>(n) * 0.6931471805599453;        // |r| < 0.35: the series is good to 1e-9
  double sum = 0.0;
  for (int i = 8; i >= 0; --i) sum = sum * r + inverse_factorial[i];
  const std::int64_t bits = (n + 1023) << 52;
  double power = 0.0;  // 2^n
  memcpy(&power, &bits, sizeof(power));
  return static_cast<std::uint64_t>(sum * power * static_cast<double>(kUnitWeight));
}

/// Threads: one caller at a time, because it holds scratch memory.
class TokenChooser {
 public:
  /// Returns the token that `how` chooses from logits [V]. Ties go to the lowest id; as in Transformers, all ids that
  /// tie for the k-th place of top-k stay. Logits that are not finite are ignored.
  ChosenToken choose(std::span<const float> logits, const TokenChoice& how);

 private:
  /// An id that may be drawn, with weight_of(logit - highest).
  struct Candidate {
    std::uint64_t weight;
    std::int32_t id;
  };
  void keep_nucleus(float top_p);
  std::int32_t draw(double uniform) const;
  static std::uint64_t total_weight(std::span<const Candidate> candidates);

  std::vector<float> scaled_;
  std::vector<Candidate> candidates_;  // in ascending order of ids
  std::vector<Candidate> sorted_;      // scratch
  std::vector<float> buffer_;          // scratch
};

/// Returns the entropy in nats of softmax(logits); logits that are not finite are ignored.
float entropy_of(std::span<const float> logits);

// The alignment of two texts by edit distance: which token of one corresponds to which token of the other. Replacing a
// token costs the distance of the two tokens' sketches (SketchedText); inserting or deleting one
// costs 1. Costs are added as integers, so that every backend finds the same alignment.

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

// Random weights as a function of a seed and the weight's index, so that any number of threads, and a device, generate
// the same weights.

/// SplitMix64: maps a counter to 64 random bits.
BATON_BOTH std::uint64_t scrambled(std::uint64_t counter) { return mixed_bits(counter * kSplitMixStep); }

/// Returns a nearly normal number of deviation 1: the scaled sum of four uniform 16-bit numbers.
BATON_BOTH float normal(std::uint64_t bits) {
  const auto sum =
      static_cast<std::int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48));
  const float deviation_of_sum = 37837.23f;  // 65536 / sqrt(3)
  return static_cast<float>(sum - 2 * 0xffff) / deviation_of_sum;
}

/// Returns weight `index` (row * columns + column) of a matrix; it is rounded to bf16 where it is stored.
BATON_BOTH float random_weight(std::uint64_t seed, std::uint64_t index, float deviation) {
  return deviation * normal(scrambled(seed + index));
}

}  // namespace baton
