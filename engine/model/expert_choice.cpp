// SPDX-License-Identifier: Apache-2.0
#include "engine/model/expert_choice.h"

#include <algorithm>
#include <cmath>

namespace baton {

void ExpertChoice::choose(std::span<const float> logits, const MixtureConfig& mixture) {
  const auto experts = static_cast<std::size_t>(mixture.experts), count = static_cast<std::size_t>(mixture.chosen);
  const std::size_t rows = logits.size() / experts;
  share_.resize(experts);
  chosen_.clear();
  chosen_weight_.clear();
  begin_.assign(experts + 1, 0);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<const float> own = logits.subspan(row * experts, experts);
    const float most = *std::max_element(own.begin(), own.end());
    float sum = 0.0f;
    for (std::size_t e = 0; e < experts; ++e) sum += share_[e] = std::exp(own[e] - most);
    const std::size_t first = chosen_.size();
    float chosen_sum = 0.0f;
    for (std::size_t i = 0; i < count; ++i) {
      const auto taken = [&](std::size_t expert) {
        return std::find(chosen_.begin() + static_cast<std::ptrdiff_t>(first), chosen_.end(),
                         static_cast<std::int32_t>(expert)) != chosen_.end();
      };
      std::size_t best = experts;
      for (std::size_t e = 0; e < experts; ++e)
        if ((best == experts || share_[e] > share_[best]) && !taken(e)) best = e;
      chosen_.push_back(static_cast<std::int32_t>(best));
      chosen_weight_.push_back(share_[best] / sum);
      chosen_sum += chosen_weight_.back();
      ++begin_[best + 1];
    }
    for (std::size_t i = first; mixture.normalized && i < chosen_.size(); ++i) chosen_weight_[i] /= chosen_sum;
  }
  for (std::size_t e = 0; e < experts; ++e) begin_[e + 1] += begin_[e];
  rows_.resize(chosen_.size());
  weights_.resize(chosen_.size());
  std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    const std::size_t at = next[static_cast<std::size_t>(chosen_[i])]++;
    rows_[at] = static_cast<std::int32_t>(i / count);
    weights_[at] = chosen_weight_[i];
  }
}

}  // namespace baton
