// SPDX-License-Identifier: Apache-2.0
// From logits to the next token: greedy, temperature, top-k, top-p, min-p. All that decides which token it is, is exact
// in any order of summation: the host and every device choose the same one.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "engine/base/both.h"

namespace baton {

/// How one token is chosen. Order, as Transformers applies them: temperature, top-k, top-p, min-p.
struct TokenChoice {
  double uniform = 0.0;      // in [0, 1): which of the candidates is drawn
  float temperature = 0.0f;  // 0: greedy
  std::int32_t top_k = 0;    // 0: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  std::int32_t entropy = 0;  // not 0: wanted
  std::int32_t unused = 0;   // no padding: arrays of it are compared as bytes
};

struct ChosenToken {
  std::int32_t id = -1;  // -1: no logit is finite
  float entropy = 0.0f;  // nats, of softmax(logits), see entropy_of
};

/// A weight of 1. The sum over 2^24 ids stays below 2^64.
inline constexpr std::uint64_t kUnitWeight = std::uint64_t{1} << 39;

/// Ids less likely than e^this times the likeliest count for nothing in an entropy.
inline constexpr float kEntropyReach = -18.0f;

/// e^x for x <= 0 in units of kUnitWeight; what is below that is never drawn. Sums of such weights are exact in any
/// order, and only +, * and bit operations make them: exp differs between libraries, and then the same seed would not
/// give the same text on every machine.
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

/// Not safe for concurrent use: holds scratch.
class TokenChooser {
 public:
  /// logits [V]. Ties go to the lowest id; as in Transformers, all ids that tie for the k-th place of top-k stay.
  /// Logits that are not finite take no part.
  ChosenToken choose(std::span<const float> logits, const TokenChoice& how);

 private:
  /// An id that may be drawn, with its share: e^(logit - highest) in units of kUnitWeight.
  struct Candidate {
    std::uint64_t weight;
    std::int32_t id;
  };
  void keep_nucleus(float top_p);
  std::int32_t draw(double uniform) const;
  static std::uint64_t total_weight(std::span<const Candidate> candidates);

  std::vector<float> scaled_;
  std::vector<Candidate> candidates_;  // by id
  std::vector<Candidate> sorted_;      // scratch
  std::vector<float> buffer_;          // scratch
};

/// Entropy in nats of softmax(logits); logits that are not finite take no part.
float entropy_of(std::span<const float> logits);

}  // namespace baton
