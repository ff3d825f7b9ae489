// SPDX-License-Identifier: Apache-2.0
// Measures the effect of recomputing layers, to find the layers that rectify recomputes for one model and the group of
// layers that droidspeak recomputes between two models.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/learning/profiler.h"
#include "engine/reuse/profile/range_search.h"

namespace baton {

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
