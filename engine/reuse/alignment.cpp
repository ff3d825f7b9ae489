#include "engine/reuse/alignment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace baton {
namespace {

constexpr std::int64_t kWidth = SketchedText::kSketch;
constexpr float kGap = 1.0f;
constexpr std::int64_t kBand = 256;  // texts whose counterparts are further apart than this are not similar
constexpr float kFar = 1e30f;

}  // namespace

Aligner::Aligner(std::shared_ptr<const SketchedText> other) : other_(std::move(other)) {
  const std::int64_t m = other_->size();
  cost_.assign(static_cast<std::size_t>(m) + 1, kFar);
  next_ = cost_;
  const Band first = band(0);
  for (std::int64_t j = 0; j < first.end; ++j) cost_[static_cast<std::size_t>(j)] = kGap * static_cast<float>(j);
}

Aligner::Band Aligner::band(std::int64_t row) const {
  const std::int64_t m = other_->size();
  return {std::clamp<std::int64_t>(row - kBand, 0, m), std::clamp<std::int64_t>(row + kBand, 0, m) + 1};
}

void Aligner::push(const float* sketch) {
  const Band columns = band(++rows_);
  begins_.push_back(moves_.size());
  const auto width = static_cast<std::size_t>(columns.end - columns.begin);
  moves_.resize(moves_.size() + width);
  replaced_.resize(moves_.size(), 0.0f);
  std::fill(next_.begin(), next_.end(), kFar);
  for (std::int64_t j = columns.begin; j < columns.end; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const std::size_t cell = begins_.back() + static_cast<std::size_t>(j - columns.begin);
    float best = cost_[at] + kGap;
    Move move = kAdd;
    if (j > 0) {
      const float distance = token_distance(sketch, other_->sketch.data() + (j - 1) * kWidth);
      replaced_[cell] = distance;
      if (cost_[at - 1] + distance <= best) best = cost_[at - 1] + distance, move = kReplace;
      if (next_[at - 1] + kGap < best) best = next_[at - 1] + kGap, move = kSkip;
    }
    next_[at] = best;
    moves_[cell] = move;
  }
  std::swap(cost_, next_);
}

Alignment Aligner::result() const {
  Alignment alignment;
  const auto n = static_cast<std::size_t>(rows_);
  alignment.to.assign(n, 0);
  alignment.mismatch.assign(n, kGap);
  if (n == 0) return alignment;
  auto j = static_cast<std::int64_t>(std::min_element(cost_.begin(), cost_.end()) - cost_.begin());
  alignment.distance = cost_[static_cast<std::size_t>(j)] / static_cast<float>(n);
  for (std::int64_t i = rows_; i > 0;) {
    const auto row = static_cast<std::size_t>(i - 1);
    const std::size_t cell = begins_[row] + static_cast<std::size_t>(j - band(i).begin);
    const Move move = moves_[cell];
    if (move == kSkip) {
      --j;
      continue;
    }
    alignment.to[row] = static_cast<std::int32_t>(std::max<std::int64_t>(0, j - 1));
    if (move == kReplace) alignment.mismatch[row] = replaced_[cell], --j;
    --i;
  }
  return alignment;
}

Alignment align(const SketchedText& text, std::shared_ptr<const SketchedText> other) {
  Aligner aligner(std::move(other));
  for (std::int64_t i = 0; i < text.size(); ++i) aligner.push(text.sketch.data() + i * kWidth);
  return aligner.result();
}

Alignment align_by_index(const SketchedText& text, const SketchedText& other) {
  if (other.size() < text.size()) throw std::invalid_argument("align_by_index: the other text is shorter");
  Alignment alignment;
  double squares = 0.0;
  for (std::int64_t i = 0; i < text.size(); ++i) {
    const float distance = token_distance(text.sketch.data() + i * kWidth, other.sketch.data() + i * kWidth);
    alignment.to.push_back(static_cast<std::int32_t>(i));
    alignment.mismatch.push_back(distance);
    squares += double{distance} * distance;
  }
  if (text.size() > 0) alignment.distance = static_cast<float>(std::sqrt(squares / static_cast<double>(text.size())));
  return alignment;
}

}  // namespace baton
