#include "engine/model/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>

namespace baton {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// splitmix64 (Steele, Lea, Flood 2014), as a number in [0, 1) of 53 bits.
double next_uniform(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-53;
}

constexpr std::uint64_t kOne = std::uint64_t{1} << 39;  // the sum over 2^24 ids stays below 2^64

/// e^x for x <= 0 in units of 2^-39; what is below that is never drawn. Sums of such weights are exact in any order,
/// and only +, * and bit operations make them: std::exp differs between C libraries, and then the same seed would not
/// give the same text on every machine.
std::uint64_t weight_of(float logit) {
  if (!(logit > -28.0f)) return 0;
  constexpr double kInverseFactorial[] = {1.0,       1.0,       1.0 / 2,    1.0 / 6,    1.0 / 24,
                                          1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320};
  const double x = logit;
  const auto n = static_cast<std::int64_t>(x * 1.4426950408889634 - 0.5);  // x / ln 2 to the nearest, as x <= 0
  const double r = x - static_cast<double>(n) * 0.6931471805599453;        // |r| < 0.35: the series is good to 1e-9
  double power = 0.0;
  for (int i = 8; i >= 0; --i) power = power * r + kInverseFactorial[i];
  return static_cast<std::uint64_t>(power * std::bit_cast<double>((n + 1023) << 52) * static_cast<double>(kOne));
}

/// The count-th largest value. Two passes over V at most: candidates are collected in a buffer of twice the count, and
/// each time it is full its lower half goes and the bar rises.
float nth_largest(std::span<const float> values, std::size_t count, std::vector<float>& buffer) {
  if (count >= values.size()) return kNever;
  buffer.clear();
  float bar = kNever;
  const auto keep_best = [&] {
    std::nth_element(buffer.begin(), buffer.begin() + (count - 1), buffer.end(), std::greater<>());
    buffer.resize(count);
    bar = buffer.back();
  };
  for (const float value : values) {
    if (!(value > bar)) continue;
    buffer.push_back(value);
    if (buffer.size() == 2 * count) keep_best();
  }
  if (buffer.size() >= count) keep_best();
  return bar;
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
  return "";
}

Sampler::Sampler(const SamplingParams& params) : params_(params), state_(params.seed) {
  if (const std::string problem = params.problem(); !problem.empty()) throw std::invalid_argument(problem);
}

TokenId Sampler::sample(std::span<float> logits, std::span<const TokenId> seen) {
  if (params_.repetition_penalty != 1.0f) penalise(logits, seen);

  // Only finite logits take part.
  std::size_t best = 0;
  float highest = kNever;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) logits[id] = kNever;
    if (logits[id] > highest) highest = logits[best = id];
  }
  if (highest == kNever) throw std::runtime_error(fmt::format("none of {} logits is finite", logits.size()));
  if (params_.temperature == 0.0f) return static_cast<TokenId>(best);

  // Relative to the highest: nothing below depends on a shift, and a low temperature cannot overflow.
  for (float& logit : logits) logit = (logit - highest) / params_.temperature;

  const float bar = params_.top_k > 0 ? nth_largest(logits, params_.top_k, buffer_) : kNever;
  candidates_.clear();
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (!(logits[id] >= bar)) continue;
    if (const std::uint64_t weight = weight_of(logits[id]); weight > 0)
      candidates_.push_back({weight, static_cast<TokenId>(id)});
  }
  if (params_.top_p < 1.0f) keep_nucleus();
  if (params_.min_p > 0.0f) {
    const double least = static_cast<double>(params_.min_p) * static_cast<double>(kOne);  // the best weighs kOne
    std::erase_if(candidates_, [&](const Candidate& c) { return static_cast<double>(c.weight) < least; });
  }
  return draw();
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

/// Keeps an id when the ids more likely than it have less than top_p of all weight; so the first stays always.
void Sampler::keep_nucleus() {
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  const auto target = static_cast<std::uint64_t>(params_.top_p * static_cast<double>(total_weight(candidates_)));
  // The least likely id that stays is always in `range`. Halving finds it without sorting the vocabulary.
  sorted_ = candidates_;
  std::span<Candidate> range = sorted_;
  std::uint64_t before = 0;
  while (range.size() > 1) {
    const std::size_t half = range.size() / 2;
    std::nth_element(range.begin(), range.begin() + static_cast<std::ptrdiff_t>(half), range.end(), more_likely);
    const std::uint64_t upper = total_weight(range.first(half));
    if (before + upper >= target) {
      range = range.first(half);
    } else {
      before += upper;
      range = range.subspan(half);
    }
  }
  const Candidate last = range.front();
  std::erase_if(candidates_, [&](const Candidate& c) { return more_likely(last, c); });
}

std::uint64_t Sampler::total_weight(std::span<const Candidate> candidates) {
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

TokenId Sampler::draw() {
  const auto total = static_cast<double>(total_weight(candidates_));
  auto left = static_cast<std::uint64_t>(next_uniform(state_) * total);  // below the total
  for (const Candidate& candidate : candidates_) {
    if (left < candidate.weight) return candidate.id;
    left -= candidate.weight;
  }
  return candidates_.back().id;  // the product was rounded up to the total
}

float entropy_of(std::span<const float> logits) {
  float most = kNever;
  for (const float logit : logits) most = logit > most ? logit : most;  // a NaN is none
  double sum = 0.0, weighted = 0.0;
  for (const float logit : logits) {
    const float below = logit - most;
    if (!(below > -18.0f)) continue;
    const double share = std::exp(static_cast<double>(below));
    sum += share;
    weighted += share * below;
  }
  return sum > 0.0 ? static_cast<float>(std::log(sum) - weighted / sum) : 0.0f;
}

}  // namespace baton
