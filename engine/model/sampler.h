// SPDX-License-Identifier: Apache-2.0
// Sampler: the state by which a sequence's tokens are chosen: parameters, seen tokens and a seeded generator.
// engine/backend/host_operations.h implements the choice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/host_operations.h"
#include "engine/text/tokenizer.h"

namespace baton {

struct SamplingParams {
  float temperature = 0.0f;         // 0: greedy
  std::int32_t top_k = 0;           // 0: off
  float top_p = 1.0f;               // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off; over prompt and output, as in Transformers
  float presence_penalty = 0.0f;    // 0: off; taken from the logit of each token that the output has, as OpenAI says
  float frequency_penalty = 0.0f;   // 0: off; the same for each time that the output has it
  std::uint64_t seed = 0;

  /// Returns the first invalid parameter with the value found and the range expected; empty when all are valid.
  std::string problem() const;
};

/// One per sequence; the same seed and logits give the same tokens on every machine and device.
/// Order: the tokens that are allowed, repetition penalty, presence and frequency penalty, and then as in Transformers:
/// temperature, top-k, top-p, min-p.
class Sampler {
 public:
  /// Throws std::invalid_argument with params.problem().
  explicit Sampler(const SamplingParams& params);

  /// True when the choice needs the seen tokens in addition to the logits.
  bool penalises() const {
    return params_.repetition_penalty != 1.0f || params_.presence_penalty != 0.0f || params_.frequency_penalty != 0.0f;
  }

  /// Returns the parameters of the next choice, for a sampler that does not penalise; unchanged until advance().
  /// `ahead`: those after that many calls of advance().
  TokenChoice next(std::int32_t ahead = 0) const;
  /// Ids of the prompt and the output so far, and the output among them.
  struct Seen {
    std::span<const TokenId> all, output;
  };
  /// Chooses the next token on the host, from logits [V]. `allowed`: one bit for each id, 32 in a word; empty: all are
  /// allowed. `scratch` is for logits that are changed: penalised, or those of tokens that are not allowed. Returns the
  /// same until advance() is called.
  ChosenToken choose(std::span<const float> logits, const Seen& seen, std::span<const std::uint32_t> allowed,
                     std::vector<float>& scratch);
  /// Advances the generator after a token was chosen.
  void advance();

  /// Chooses the next token and advances. Throws std::runtime_error when no logit is finite.
  TokenId sample(std::span<float> logits, const Seen& seen);

 private:
  void penalise(std::span<float> logits, const Seen& seen);

  SamplingParams params_;
  std::uint64_t state_;  // state of splitmix64; one step for each token that is not chosen greedily
  TokenChooser chooser_;
  std::vector<bool> marked_;  // [V] all false between calls
};

/// Returns the id of a choice among `logits` logits. Throws std::runtime_error when none of them was finite.
TokenId id_of(const ChosenToken& chosen, std::size_t logits);

}  // namespace baton
