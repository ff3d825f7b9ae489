// SPDX-License-Identifier: Apache-2.0
// Finds the layers that rectify recomputes from the effect of recomputing them (docs/methods.md, "Layers"; ours): the
// divergence from full prefill that remains, instead of the similarity of the values. This file holds the mathematics;
// engine/learning/effect_profiler.h measures.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/reuse/options.h"

namespace baton {

/// A schedule to measure.
struct RangeCandidate {
  LayerRange range;
  double share = 1.0;  // fraction of each segment's tokens recomputed after range.detect; 0: direct reuse
};

/// Returns the divergence of each candidate in nats per token, or nothing to end the search.
using MeasureCandidates = std::function<std::optional<std::vector<double>>(std::span<const RangeCandidate>)>;

struct RangeSearchSettings {
  double left = 0.1;   // fraction of direct reuse's divergence that may remain
  double share = 0.2;  // fraction of tokens chosen at the first possible detection layer; smaller at later layers
};

/// The measured effect of recomputing layers. The curves are fractions of direct reuse's divergence; NaN: not measured.
struct LayerEffect {
  LayerRange range;
  double direct = 0.0;         // divergence of direct reuse, nats per token
  double weighty = 0.0;        // effective number of hand-overs: (sum d)^2 / sum d^2
  std::vector<double> start;   // [L] all reused tokens are recomputed from layer l to the last
  std::vector<double> end;     // [L] all reused tokens are recomputed from range.start to l
  std::vector<double> detect;  // [L] the tokens chosen in l are recomputed up to range.end
  std::string problem;         // why no range was found, or empty
};

/// Returns the range and its curves, or nothing when the measurement ended early. l_s is the deepest layer from which
/// recomputing all tokens to the last layer leaves at most settings.left. l_e is the first layer such that recomputing
/// all tokens from l_s to l_e leaves at most settings.left more than recomputing to the last layer. l_d is the layer in
/// between that leaves least at equal cost: the later l_d is, the more layers all tokens run through and the fewer
/// tokens are chosen. Throws std::invalid_argument for fewer than 4 layers.
std::optional<LayerEffect> search_range(std::int32_t layers, const MeasureCandidates& measure,
                                        const RangeSearchSettings& settings = {});

}  // namespace baton
