// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/host_operations.h"

#include <algorithm>
#include <array>
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

/// Returns the highest finite value; kNever if there is none. Lanes let compilers use vector instructions.
float highest_of(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kNever);
  const auto take = [](float& lane, float logit) {
    const bool higher = logit > lane && logit <= std::numeric_limits<float>::max();  // false for NaN and infinity
    lane = higher ? logit : lane;
  };
  const std::size_t whole = logits.size() / kLanes * kLanes;
  for (std::size_t id = 0; id < whole; id += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) take(lanes[lane], logits[id + lane]);
  for (std::size_t id = whole; id < logits.size(); ++id) take(lanes[0], logits[id]);
  return *std::max_element(lanes.begin(), lanes.end());
}

}  // namespace

ChosenToken TokenChooser::choose(std::span<const float> logits, const TokenChoice& how) {
  const float highest = highest_of(logits);
  if (highest == kNever) return {};
  const float entropy = how.entropy != 0 ? entropy_of(logits) : 0.0f;
  if (how.temperature == 0.0f) {
    const auto best = std::find(logits.begin(), logits.end(), highest) - logits.begin();
    return {static_cast<std::int32_t>(best), entropy};
  }

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

using namespace editing;

float token_distance(const float* a, const float* b) {
  constexpr std::int32_t kSums = 8;  // independent sums, so that the compiler vectorizes
  float sums[kSums] = {};
  for (std::int32_t i = 0; i < kSketchWidth; i += kSums) {
    for (std::int32_t j = 0; j < kSums; ++j) sums[j] += (a[i + j] - b[i + j]) * (a[i + j] - b[i + j]);
  }
  float sum = 0.0f;
  for (const float part : sums) sum += part;
  return std::min(1.0f, std::sqrt(sum));
}

Aligner::Aligner(std::span<const float> other)
    : other_(other), m_(static_cast<std::int64_t>(other.size()) / kSketchWidth) {
  cost_.assign(static_cast<std::size_t>(m_) + 1, kFar);
  next_ = cost_;
  const Band first = band(0, m_);
  for (std::int64_t j = 0; j < first.end; ++j) cost_[static_cast<std::size_t>(j)] = kOne * static_cast<std::int32_t>(j);
}

void Aligner::push(const float* sketch) {
  const Band columns = band(++rows_, m_);
  begins_.push_back(moves_.size());
  const auto width = static_cast<std::size_t>(columns.end - columns.begin);
  moves_.resize(moves_.size() + width);
  replaced_.resize(moves_.size(), 0);
  std::fill(next_.begin(), next_.end(), kFar);
  for (std::int64_t j = columns.begin; j < columns.end; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const std::size_t cell = begins_.back() + static_cast<std::size_t>(j - columns.begin);
    std::int32_t best = cost_[at] + kOne;
    Move move = kAdd;
    if (j > 0) {
      const std::int32_t replaced = cost_of(token_distance(sketch, other_.data() + (j - 1) * kSketchWidth));
      replaced_[cell] = replaced;
      if (cost_[at - 1] + replaced <= best) best = cost_[at - 1] + replaced, move = kReplace;
      if (next_[at - 1] + kOne < best) best = next_[at - 1] + kOne, move = kSkip;
    }
    next_[at] = std::min(best, kFar);
    moves_[cell] = move;
  }
  std::swap(cost_, next_);
}

Alignment Aligner::result() const {
  Alignment alignment;
  const auto n = static_cast<std::size_t>(rows_);
  alignment.to.assign(n, 0);
  alignment.mismatch.assign(n, 1.0f);
  if (n == 0) return alignment;
  auto j = static_cast<std::int64_t>(std::min_element(cost_.begin(), cost_.end()) - cost_.begin());
  alignment.distance = in_ones(cost_[static_cast<std::size_t>(j)]) / static_cast<float>(n);
  for (std::int64_t i = rows_; i > 0;) {
    const auto row = static_cast<std::size_t>(i - 1);
    const std::size_t cell = begins_[row] + static_cast<std::size_t>(j - band(i, m_).begin);
    const Move move = moves_[cell];
    if (move == kSkip) {
      --j;
      continue;
    }
    alignment.to[row] = static_cast<std::int32_t>(std::max<std::int64_t>(0, j - 1));
    if (move == kReplace) alignment.mismatch[row] = in_ones(replaced_[cell]), --j;
    --i;
  }
  return alignment;
}

}  // namespace baton
