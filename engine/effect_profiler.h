// Measures on a model what recomputing layers is worth, and finds the layers that relay recomputes by it.
#pragma once

#include <optional>
#include <span>

#include "engine/profiler.h"
#include "engine/reuse/range_search.h"

namespace baton {

struct EffectOptions {
  std::int32_t reply_tokens = 64;  // of each consumer's answer, over which distributions are compared
  RangeSearchSettings search;
};

/// The consumer of each hand-over answers with full prefill, greedily; then with each candidate, forced to that answer,
/// and the mean over tokens of KL(full || candidate) counts. Otherwise as measure_profile, whose options it takes. A
/// range only where LayerEffect::problem is empty.
std::optional<LayerEffect> measure_effect(Engine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const EffectOptions& effect = {});

}  // namespace baton
