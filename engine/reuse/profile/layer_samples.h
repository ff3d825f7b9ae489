// SPDX-License-Identifier: Apache-2.0
// Measured hand-overs put together: the curves of a model, and how much the layers found depend on which hand-overs
// were measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/reuse/profile/layer_profile.h"

namespace baton {

/// One hand-over: how far its reused values are from those of a full prefill.
struct LayerSample {
  std::int64_t tokens = 0;
  std::vector<double> deviation;    // [L] mean over tokens of d^l, eq. 1
  std::vector<double> correlation;  // [L - 1] Spearman of (d^l, d^(l+1)) over tokens; NaN: one of them is constant
};

/// d^l of n tokens per layer -> a sample. `deviations`: [L][n].
LayerSample sample_of(const std::vector<std::vector<double>>& deviations);

/// Similarity is the mean over all tokens of all samples; correlation the mean over the samples that have one, and NaN
/// where the deviation of either layer is below `rounding`. Samples must have the same number of layers.
LayerCurves curves_of(std::span<const LayerSample> samples, double rounding);

/// Shares of resamples that gave the same layer.
struct Agreement {
  double start = 0.0;
  double detect = 0.0;
  double end = 0.0;
  double all = 0.0;  // the same three
};

struct Certainty {
  std::vector<double> similarity_error;   // [L] standard errors; NaN: not known
  std::vector<double> correlation_error;  // [L - 1]
  Agreement slope;
  Agreement level;
};

/// Bootstrap over hand-overs: the range is found again from `resamples` draws of as many samples, with replacement,
/// and compared with that of all. The same seed gives the same numbers.
Certainty bootstrap(std::span<const LayerSample> samples, double rounding, std::uint64_t seed,
                    std::int32_t resamples = 1000, const RangeSettings& settings = {});

}  // namespace baton
