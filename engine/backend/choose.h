// SPDX-License-Identifier: Apache-2.0
// Sampling of the next token from logits: greedy, temperature, top-k, top-p, min-p. Everything that decides the token
// is exact in any order of summation, so the host and every device choose the same token.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/both.h"

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

}  // namespace baton
