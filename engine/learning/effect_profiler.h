// SPDX-License-Identifier: Apache-2.0
// Measures on a model what recomputing layers is worth, and finds the layers that rectify recomputes by it; and the
// same between two models, for droidspeak.
#pragma once

#include <optional>
#include <span>

#include "engine/learning/profiler.h"
#include "engine/reuse/profile/range_search.h"

namespace baton {

struct EffectOptions {
  std::int32_t reply_tokens = 64;  // of each consumer's answer, over which distributions are compared
  RangeSearchSettings search;
};

/// The consumer of each hand-over answers with full prefill, greedily; then with each candidate, forced to that answer,
/// and the mean over tokens of KL(full || candidate) counts. Otherwise as measure_profile, whose options it takes. A
/// range only where LayerEffect::problem is empty.
std::optional<LayerEffect> measure_effect(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const EffectOptions& effect = {});

struct GroupOptions {
  std::int32_t reply_tokens = 64;
  std::int32_t step = 2;  // groups begin at its multiples, and have multiples of it
  double left = 0.1;      // a group will do when no more than this of direct reuse's divergence is left
};

/// What is left of the divergence of direct reuse when the reader recomputes layers [start, end] for all reused tokens.
struct GroupPoint {
  std::int32_t start = 0, end = 0;
  double left = 0.0;
  std::int32_t layers() const { return end - start + 1; }
  bool operator==(const GroupPoint&) const = default;
};

struct GroupEffect {
  double direct = 0.0;             // divergence of direct reuse, nats per token
  double weighty = 0.0;            // as LayerEffect has it
  std::vector<GroupPoint> points;  // of all groups
  std::int32_t hand_overs = 0;     // that were measured
  std::int64_t tokens = 0;         // of answers that were compared
  std::string problem;             // why there are none, or empty
};

/// The points that no other beats, fewer layers first (DroidSpeak, section 4: the Pareto frontier).
std::vector<GroupPoint> frontier(std::vector<GroupPoint> points);
/// The cheapest group that leaves at most `left`; [0, layers - 1] where none does.
LayerRange cheapest_group(const std::vector<GroupPoint>& points, double left, std::int32_t layers);

/// Between two engines whose models share their shapes (kv_difference): `author` decodes the answers, and `reader`
/// answers with their KV in its prompts, as measure_effect does it. The engines may be the same.
std::optional<GroupEffect> measure_groups(LocalEngine& author, LocalEngine& reader,
                                          std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const GroupOptions& groups = {});

}  // namespace baton
