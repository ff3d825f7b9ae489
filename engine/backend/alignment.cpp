// SPDX-License-Identifier: Apache-2.0
#include "engine/backend/alignment.h"

#include <algorithm>
#include <cmath>

namespace baton {

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
