// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/choose.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace baton {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// Returns the count-th largest value at the cost of about two passes over V: candidates are collected in a buffer of
/// twice the count, and each time it is full its lower half is dropped and the threshold rises.
float nth_largest(std::span<const float> values, std::size_t count, std::vector<float>& buffer) {
  if (count >= values.size()) return kNever;
  buffer.clear();
  float bar = kNever;
  const auto keep_best = [&] {
    std::nth_element(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(count - 1), buffer.end(),
                     std::greater<>());
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

ChosenToken TokenChooser::choose(std::span<const float> logits, const TokenChoice& how) {
  std::size_t best = 0;
  float highest = kNever;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] > highest && std::isfinite(logits[id])) highest = logits[best = id];
  }
  if (highest == kNever) return {};
  const float entropy = how.entropy != 0 ? entropy_of(logits) : 0.0f;
  if (how.temperature == 0.0f) return {static_cast<std::int32_t>(best), entropy};

  // Relative to the highest logit: the result does not depend on a shift, and a low temperature cannot overflow.
  scaled_.resize(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id)
    scaled_[id] = std::isfinite(logits[id]) ? (logits[id] - highest) / how.temperature : kNever;

  const float bar = how.top_k > 0 ? nth_largest(scaled_, static_cast<std::size_t>(how.top_k), buffer_) : kNever;
  candidates_.clear();
  for (std::size_t id = 0; id < scaled_.size(); ++id) {
    if (!(scaled_[id] >= bar)) continue;
    if (const std::uint64_t weight = weight_of(scaled_[id]); weight > 0)
      candidates_.push_back({weight, static_cast<std::int32_t>(id)});
  }
  if (how.top_p < 1.0f) keep_nucleus(how.top_p);
  if (how.min_p > 0.0f) {
    const double least =
        static_cast<double>(how.min_p) * static_cast<double>(kUnitWeight);  // the likeliest id weighs 1
    std::erase_if(candidates_, [&](const Candidate& c) { return static_cast<double>(c.weight) < least; });
  }
  return {draw(how.uniform), entropy};
}

/// Keeps an id when all more likely ids together have less than top_p of the total weight, so the likeliest id stays.
void TokenChooser::keep_nucleus(float top_p) {
  const auto more_likely = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  const auto target = static_cast<std::uint64_t>(top_p * static_cast<double>(total_weight(candidates_)));
  // `range` always holds the least likely id that stays. Halving finds it without sorting the vocabulary.
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

std::uint64_t TokenChooser::total_weight(std::span<const Candidate> candidates) {
  std::uint64_t total = 0;
  for (const Candidate& candidate : candidates) total += candidate.weight;
  return total;
}

std::int32_t TokenChooser::draw(double uniform) const {
  const auto total = static_cast<double>(total_weight(candidates_));
  auto left = static_cast<std::uint64_t>(uniform * total);  // less than the total
  for (const Candidate& candidate : candidates_) {
    if (left < candidate.weight) return candidate.id;
    left -= candidate.weight;
  }
  return candidates_.back().id;  // uniform * total was rounded up to the total
}

float entropy_of(std::span<const float> logits) {
  float most = kNever;
  for (const float logit : logits) {
    if (logit > most && std::isfinite(logit)) most = logit;
  }
  double sum = 0.0, weighted = 0.0;
  for (const float logit : logits) {
    const float below = logit - most;
    if (!(below > kEntropyReach && below <= 0.0f)) continue;
    const double share = std::exp(static_cast<double>(below));
    sum += share;
    weighted += share * below;
  }
  return sum > 0.0 ? static_cast<float>(std::log(sum) - weighted / sum) : 0.0f;
}

}  // namespace baton
