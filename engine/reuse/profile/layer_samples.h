// SPDX-License-Identifier: Apache-2.0
// Aggregation of measured hand-overs: the curves of a model, and the dependence of the layer range on the choice of
// measured hand-overs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/reuse/profile/layer_profile.h"

namespace baton {

/// One hand-over: the deviation of its reused values from those of a full prefill.
struct LayerSample {
  std::int64_t tokens = 0;
  std::vector<double> deviation;    // [L] mean over tokens of d^l, eq. 1
  std::vector<double> correlation;  // [L - 1] Spearman of (d^l, d^(l+1)) over tokens; NaN: one list is constant
};

/// Makes a sample from the deviations d^l of n tokens in each layer, [L][n].
LayerSample sample_of(const std::vector<std::vector<double>>& deviations);

/// Returns the mean curves. The similarity is the mean over all tokens of all samples. The correlation is the mean over
/// the samples that have one, and NaN where the deviation of either layer is below `rounding`. Throws
/// std::invalid_argument without samples or when their numbers of layers differ.
LayerCurves curves_of(std::span<const LayerSample> samples, double rounding);

/// The fractions of resamples that gave the same layer.
struct Agreement {
  double start = 0.0;
  double detect = 0.0;
  double end = 0.0;
  double all = 0.0;  // all three layers are the same
};

struct Certainty {
  std::vector<double> similarity_error;   // [L] standard errors; NaN: unknown
  std::vector<double> correlation_error;  // [L - 1]
  Agreement slope;
  Agreement level;
};

/// Bootstrap over hand-overs: finds the range from `resamples` draws of as many samples, with replacement, and compares
/// it with the range of all samples. The same seed gives the same numbers.
Certainty bootstrap(std::span<const LayerSample> samples, double rounding, std::uint64_t seed,
                    std::int32_t resamples = 1000, const RangeSettings& settings = {});

}  // namespace baton
