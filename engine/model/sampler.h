// From logits to the next token: greedy, temperature, top-k, top-p, min-p, repetition penalty; seeded.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/model/tokenizer.h"

namespace baton {

struct SamplingParams {
  float temperature = 0.0f;         // 0: greedy
  std::int32_t top_k = 0;           // 0: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off; over prompt and output, as Transformers does it
  std::uint64_t seed = 0;

  /// Empty when sound, otherwise what is wrong, with the expected range.
  std::string problem() const;
};

/// One per sequence; the same seed and logits give the same tokens on every machine.
/// Order, as Transformers applies them: repetition penalty, temperature, top-k, top-p, min-p.
class Sampler {
 public:
  /// Throws std::invalid_argument with params.problem().
  explicit Sampler(const SamplingParams& params);

  /// `logits` [V] is scratch and is changed. `seen`: ids of prompt and output so far. Ties go to the lowest id; as in
  /// Transformers, all ids that tie for the k-th place of top-k stay. Logits that are not finite take no part.
  /// Throws std::runtime_error when none is finite.
  TokenId sample(std::span<float> logits, std::span<const TokenId> seen);

 private:
  /// An id that may be drawn, with its share: e^(logit - highest) in units of 2^-39.
  struct Candidate {
    std::uint64_t weight;
    TokenId id;
  };

  void penalise(std::span<float> logits, std::span<const TokenId> seen);
  void keep_nucleus();
  TokenId draw();
  static std::uint64_t total_weight(std::span<const Candidate> candidates);

  SamplingParams params_;
  std::uint64_t state_;                // of splitmix64; one step for each token that is not greedy
  std::vector<Candidate> candidates_;  // by id
  std::vector<Candidate> sorted_;      // scratch
  std::vector<float> buffer_;          // scratch
  std::vector<bool> marked_;           // [V] all false between calls
};

/// Entropy in nats of softmax(logits). Ids less likely than e^-18 times the likeliest are left out.
float entropy_of(std::span<const float> logits);

}  // namespace baton
