// SPDX-License-Identifier: Apache-2.0
#include "engine/model/sampler.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "engine/base/random.h"

namespace baton {
std::string SamplingParams::problem() const {
  if (!(temperature >= 0.0f && std::isfinite(temperature)))
    return fmt::format("temperature is {}, expected 0 (greedy) or more", temperature);
  if (top_k < 0) return fmt::format("top_k is {}, expected 0 (off) or more", top_k);
  if (!(top_p > 0.0f && top_p <= 1.0f)) return fmt::format("top_p is {}, expected more than 0, at most 1 (off)", top_p);
  if (!(min_p >= 0.0f && min_p <= 1.0f)) return fmt::format("min_p is {}, expected 0 (off) to 1", min_p);
  if (!(repetition_penalty > 0.0f && std::isfinite(repetition_penalty)))
    return fmt::format("repetition_penalty is {}, expected more than 0; 1 is off", repetition_penalty);
  return "";
}

Sampler::Sampler(const SamplingParams& params) : params_(params), state_(params.seed) {
  if (const std::string problem = params.problem(); !problem.empty()) throw std::invalid_argument(problem);
}

TokenChoice Sampler::next(std::int32_t ahead) const {
  std::uint64_t state = state_;
  for (; ahead > 0 && params_.temperature != 0.0f; --ahead) next_uniform(state);
  return {.uniform = params_.temperature == 0.0f ? 0.0 : next_uniform(state),
          .temperature = params_.temperature,
          .top_k = params_.top_k,
          .top_p = params_.top_p,
          .min_p = params_.min_p};
}

void Sampler::advance() {
  if (params_.temperature != 0.0f) next_uniform(state_);
}

ChosenToken Sampler::choose(std::span<float> logits, std::span<const TokenId> seen) {
  if (penalises()) penalise(logits, seen);
  return chooser_.choose(logits, next());
}

TokenId Sampler::sample(std::span<float> logits, std::span<const TokenId> seen) {
  const TokenId id = id_of(choose(logits, seen), logits.size());
  advance();
  return id;
}

void Sampler::penalise(std::span<float> logits, std::span<const TokenId> seen) {
  marked_.resize(logits.size());
  for (const TokenId id : seen) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size() || marked_[id]) continue;
    marked_[id] = true;
    logits[id] = logits[id] < 0.0f ? logits[id] * params_.repetition_penalty : logits[id] / params_.repetition_penalty;
  }
  for (const TokenId id : seen)
    if (id >= 0 && static_cast<std::size_t>(id) < logits.size()) marked_[id] = false;
}

TokenId id_of(const ChosenToken& chosen, std::size_t logits) {
  if (chosen.id < 0)
    throw std::runtime_error(fmt::format("expected at least one finite logit, found none among {}", logits));
  return chosen.id;
}

}  // namespace baton
