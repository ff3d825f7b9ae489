// SPDX-License-Identifier: Apache-2.0
// What a sequence's tokens are chosen by: parameters, what was seen, and the state of a seeded generator. The choice
// itself is engine/backend/choose.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/choose.h"
#include "engine/text/tokenizer.h"

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

/// One per sequence; the same seed and logits give the same tokens on every machine and device.
/// Order, as Transformers applies them: repetition penalty, temperature, top-k, top-p, min-p.
class Sampler {
 public:
  /// Throws std::invalid_argument with params.problem().
  explicit Sampler(const SamplingParams& params);

  /// The choice takes more than logits: what was seen, too.
  bool penalises() const { return params_.repetition_penalty != 1.0f; }

  /// How the next token is chosen by one that does not penalise. The same until advance().
  TokenChoice next() const;
  /// The next token, on the host. `logits` [V] is scratch where the sampler penalises. `seen`: ids of prompt and output
  /// so far. The same until advance().
  ChosenToken choose(std::span<float> logits, std::span<const TokenId> seen);
  /// A token was chosen.
  void advance();

  /// choose(), taken. Throws std::runtime_error when no logit is finite.
  TokenId sample(std::span<float> logits, std::span<const TokenId> seen);

 private:
  void penalise(std::span<float> logits, std::span<const TokenId> seen);

  SamplingParams params_;
  std::uint64_t state_;  // of splitmix64; one step for each token that is not greedy
  TokenChooser chooser_;
  std::vector<bool> marked_;  // [V] all false between calls
};

/// The id of a choice among `logits`. Throws std::runtime_error when none was finite.
TokenId id_of(const ChosenToken& chosen, std::size_t logits);

}  // namespace baton
