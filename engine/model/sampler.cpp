// SPDX-License-Identifier: Apache-2.0
#include "engine/model/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "engine/base/random.h"

namespace baton {
namespace {

constexpr std::size_t kWordBits = 32;
constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Without branches, so that compilers use vector instructions.
void keep_allowed_of_word(std::span<float, kWordBits> logits, std::uint32_t bits) {
  for (std::uint32_t i = 0; i < kWordBits; ++i) logits[i] = (bits & (1u << i)) != 0 ? logits[i] : kNever;
}

/// True if a logit that is allowed is above a value. Without branches, as above.
bool may_be_higher(std::span<const float, kWordBits> logits, std::uint32_t bits, float value) {
  std::uint32_t any = 0;
  for (std::uint32_t i = 0; i < kWordBits; ++i)
    any |= ((bits & (1u << i)) != 0 ? 1u : 0u) & (logits[i] > value ? 1u : 0u);
  return any != 0;
}

/// The chooser ignores logits that are not finite. Words without a change are skipped: most are all ones or zeros.
void keep_allowed(std::span<float> logits, std::span<const std::uint32_t> allowed) {
  for (std::size_t word = 0; word * kWordBits < logits.size(); ++word) {
    const std::uint32_t bits = word < allowed.size() ? allowed[word] : 0;
    if (bits == ~std::uint32_t{0}) continue;
    const std::size_t begin = word * kWordBits, count = std::min(kWordBits, logits.size() - begin);
    if (bits == 0) {
      std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(begin), count, kNever);
      continue;
    }
    if (count == kWordBits) {
      keep_allowed_of_word(logits.subspan(begin).first<kWordBits>(), bits);
      continue;
    }
    for (std::size_t i = 0; i < count; ++i) {
      if ((bits >> i & 1u) == 0) logits[begin + i] = kNever;
    }
  }
}

/// Returns the first allowed id with the highest finite logit; -1: no allowed logit is finite.
TokenId highest_allowed(std::span<const float> logits, std::span<const std::uint32_t> allowed) {
  TokenId best = -1;
  float highest = kNever;
  const auto take = [&](std::size_t id) {
    if (!(logits[id] > highest) || logits[id] > std::numeric_limits<float>::max()) return;
    highest = logits[id];
    best = static_cast<TokenId>(id);
  };
  for (std::size_t word = 0; word < allowed.size() && word * kWordBits < logits.size(); ++word) {
    const std::uint32_t bits = allowed[word];
    const std::size_t begin = word * kWordBits, count = std::min(kWordBits, logits.size() - begin);
    if (bits == 0) continue;
    if (count == kWordBits && !may_be_higher(logits.subspan(begin).first<kWordBits>(), bits, highest)) continue;
    for (std::size_t i = 0; i < count; ++i) {
      if ((bits >> i & 1u) != 0) take(begin + i);
    }
  }
  return best;
}

}  // namespace

std::string SamplingParams::problem() const {
  if (!(temperature >= 0.0f && std::isfinite(temperature)))
    return fmt::format("temperature is {}, expected 0 (greedy) or more", temperature);
  if (top_k < 0) return fmt::format("top_k is {}, expected 0 (off) or more", top_k);
  if (!(top_p > 0.0f && top_p <= 1.0f)) return fmt::format("top_p is {}, expected more than 0, at most 1 (off)", top_p);
  if (!(min_p >= 0.0f && min_p <= 1.0f)) return fmt::format("min_p is {}, expected 0 (off) to 1", min_p);
  if (!(repetition_penalty > 0.0f && std::isfinite(repetition_penalty)))
    return fmt::format("repetition_penalty is {}, expected more than 0; 1 is off", repetition_penalty);
  if (!std::isfinite(presence_penalty)) return fmt::format("presence_penalty is {}; 0 is off", presence_penalty);
  if (!std::isfinite(frequency_penalty)) return fmt::format("frequency_penalty is {}; 0 is off", frequency_penalty);
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

ChosenToken Sampler::choose(std::span<const float> logits, const Seen& seen, std::span<const std::uint32_t> allowed,
                            std::vector<float>& scratch) {
  if (allowed.empty() && !penalises()) return chooser_.choose(logits, next());
  if (params_.temperature == 0.0f && !penalises()) return {highest_allowed(logits, allowed), 0.0f};
  scratch.assign(logits.begin(), logits.end());
  if (!allowed.empty()) keep_allowed(scratch, allowed);
  if (penalises()) penalise(scratch, seen);
  return chooser_.choose(scratch, next());
}

TokenId Sampler::sample(std::span<float> logits, const Seen& seen) {
  if (penalises()) penalise(logits, seen);
  const TokenId id = id_of(chooser_.choose(logits, next()), logits.size());
  advance();
  return id;
}

void Sampler::penalise(std::span<float> logits, const Seen& seen) {
  marked_.resize(logits.size());
  const auto is_logit = [&](TokenId id) { return id >= 0 && static_cast<std::size_t>(id) < logits.size(); };
  const auto once = [&](std::span<const TokenId> ids, const auto& change) {
    for (const TokenId id : ids) {
      if (!is_logit(id) || marked_[id]) continue;
      marked_[id] = true;
      change(logits[id]);
    }
    for (const TokenId id : ids)
      if (is_logit(id)) marked_[id] = false;
  };
  if (const float by = params_.repetition_penalty; by != 1.0f)
    once(seen.all, [by](float& logit) { logit = logit < 0.0f ? logit * by : logit / by; });
  if (const float by = params_.presence_penalty; by != 0.0f) once(seen.output, [by](float& logit) { logit -= by; });
  if (const float by = params_.frequency_penalty; by != 0.0f) {
    for (const TokenId id : seen.output)
      if (is_logit(id)) logits[id] -= by;
  }
}

TokenId id_of(const ChosenToken& chosen, std::size_t logits) {
  if (chosen.id < 0)
    throw std::runtime_error(fmt::format("expected at least one finite logit, found none among {}", logits));
  return chosen.id;
}

}  // namespace baton
