// SPDX-License-Identifier: Apache-2.0
// Measures the effect of recomputing layers, to find the layers that rectify recomputes for one model and the group of
// layers that droidspeak recomputes between two models.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/learning/profiler.h"
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

struct EffectOptions {
  std::int32_t reply_tokens = 64;  // tokens of each consumer's answer, over which distributions are compared
  RangeSearchSettings search;
};

/// The consumer of each hand-over answers greedily with full prefill, and then with each candidate range, forced to the
/// same answer. The measure is the mean over tokens of KL(full || candidate). Options, errors and an empty result are
/// those of measure_profile. The range is valid only when LayerEffect::problem is empty.
std::optional<LayerEffect> measure_effect(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const EffectOptions& effect = {});

struct GroupOptions {
  std::int32_t reply_tokens = 64;
  std::int32_t step = 2;  // groups begin at multiples of this, and their sizes are multiples of it
  double left = 0.1;      // fraction of direct reuse's divergence that a group may leave
};

/// The fraction of direct reuse's divergence that remains when the reader recomputes layers [start, end] for all reused
/// tokens.
struct GroupPoint {
  std::int32_t start = 0, end = 0;
  double left = 0.0;
  std::int32_t layers() const { return end - start + 1; }
  bool operator==(const GroupPoint&) const = default;
};

struct GroupEffect {
  double direct = 0.0;             // divergence of direct reuse, nats per token
  double weighty = 0.0;            // effective number of hand-overs (LayerEffect::weighty)
  std::vector<GroupPoint> points;  // all measured groups
  std::int32_t hand_overs = 0;     // number of measured hand-overs
  std::int64_t tokens = 0;         // number of compared tokens of answers
  std::string problem;             // why there are no points, or empty
};

/// Returns the Pareto frontier of the points, fewer layers first (DroidSpeak, section 4).
std::vector<GroupPoint> frontier(std::vector<GroupPoint> points);
/// Returns the cheapest group that leaves at most `left`, or [0, layers - 1] when there is none.
LayerRange cheapest_group(const std::vector<GroupPoint>& points, double left, std::int32_t layers);
/// Returns the last layers of `group` and of the larger groups that begin in the same layer and leave less than every
/// smaller one of them, ascending.
std::vector<std::int32_t> ends_of(const LayerRange& group, std::vector<GroupPoint> points);

/// Measures between two engines whose models have equal KV formats (kv_difference): `author` decodes the answers, and
/// `reader` answers with the answers' KV in its prompts, as in measure_effect. The engines may be the same. Throws
/// ModelError when the formats differ.
std::optional<GroupEffect> measure_groups(LocalEngine& author, LocalEngine& reader,
                                          std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const GroupOptions& groups = {});

}  // namespace baton
