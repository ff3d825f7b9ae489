// SPDX-License-Identifier: Apache-2.0
// Measures the effect of recomputing layers, to find the layers that rectify recomputes for one model and the group of
// layers that droidspeak recomputes between two models.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/learning/profile_files.h"
#include "engine/reuse/options.h"
#include "sdk/lab/hand_over_measurement.h"

namespace baton::inline v1::lab {

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
  std::int32_t own_kv = std::numeric_limits<std::int32_t>::max();  // layers from here on read the KV of others
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

/// Measures between two engines whose models have equal KV formats (kv_difference): `author` decodes the answers, and
/// `reader` answers with the answers' KV in its prompts, as in measure_effect. The engines may be the same. Throws
/// ModelError when the formats differ.
std::optional<GroupEffect> measure_groups(LocalEngine& author, LocalEngine& reader,
                                          std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const GroupOptions& groups = {});

}  // namespace baton::inline v1::lab
