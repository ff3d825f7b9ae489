// SPDX-License-Identifier: Apache-2.0
// The layers that rectify recomputes, found from what recomputing them is worth (docs/methods.md, "Layers"; ours): the
// divergence from full prefill that is left, instead of how similar the values are. Mathematics only:
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
  double share = 1.0;  // of each segment's tokens that are recomputed behind range.detect; 0: direct reuse
};

/// The divergence of each candidate, or nothing when the search is to end.
using MeasureCandidates = std::function<std::optional<std::vector<double>>(std::span<const RangeCandidate>)>;

struct RangeSearchSettings {
  double left = 0.1;   // a layer need not be recomputed when no more than this of direct reuse's divergence is left
  double share = 0.2;  // of the tokens, behind the first possible detection layer; fewer behind a later one
};

/// What is left of the divergence of direct reuse; 1: all of it, NaN: not measured.
struct LayerEffect {
  LayerRange range;
  double direct = 0.0;         // divergence of direct reuse, nats per token
  double weighty = 0.0;        // how many hand-overs of equal weight would carry as much of it: (sum d)^2 / sum d^2
  std::vector<double> start;   // [L] all reused tokens are recomputed from layer l to the last
  std::vector<double> end;     // [L] all of them from range.start to l
  std::vector<double> detect;  // [L] those that are chosen in l, up to range.end
  std::string problem;         // why there is no range, or empty
};

/// l_s: the deepest layer from which on recomputing everything leaves next to nothing. l_e: the first layer behind
/// which recomputing everything leaves next to nothing more. l_d: the layer in between that leaves the least at equal
/// cost: the later it is, the more layers all tokens run through, and the fewer tokens are chosen. Empty when the
/// measurement ended early. Throws std::invalid_argument for fewer than 4 layers.
std::optional<LayerEffect> search_range(std::int32_t layers, const MeasureCandidates& measure,
                                        const RangeSearchSettings& settings = {});

}  // namespace baton
