// SPDX-License-Identifier: Apache-2.0
// ExpertChoice: which experts of a mixture each row runs through, and with which weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/config.h"

namespace baton {

/// The choice of a row depends on its own logits alone. Its experts add their results in ascending order, so the row's
/// result has the same bits whatever other rows share the step.
class ExpertChoice {
 public:
  /// Chooses for rows of router logits [T, E]: the softmax of a row, the `chosen` largest of it (the lower index at
  /// equal values), divided by their sum where the mixture says so.
  void choose(std::span<const float> logits, const MixtureConfig& mixture);

  /// Returns the rows of an expert, ascending; empty: no row runs through it.
  std::span<const std::int32_t> rows(std::int32_t expert) const { return of(rows_, expert); }
  /// Returns their weights.
  std::span<const float> weights(std::int32_t expert) const { return of(weights_, expert); }

 private:
  template <class T>
  std::span<const T> of(const std::vector<T>& all, std::int32_t expert) const {
    const std::size_t begin = begin_[static_cast<std::size_t>(expert)];
    return std::span(all).subspan(begin, begin_[static_cast<std::size_t>(expert) + 1] - begin);
  }

  std::vector<float> share_;          // [E] of one row
  std::vector<std::int32_t> chosen_;  // [T, chosen] experts of the rows
  std::vector<float> chosen_weight_;  // [T, chosen]
  std::vector<std::size_t> begin_;    // [E + 1] where the rows of each expert begin
  std::vector<std::int32_t> rows_;    // [T * chosen], by expert
  std::vector<float> weights_;        // [T * chosen]
};

}  // namespace baton
