// SPDX-License-Identifier: Apache-2.0
// Measures what rectification leaves on a model at several levels of reuse, for method auto.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <vector>

#include "engine/learning/profiler.h"
#include "engine/reuse/auto/levels.h"

namespace baton {

struct LevelOptions {
  std::int32_t reply_tokens = 24;                         // tokens of each consumer's answer that are compared
  std::vector<double> reuse = {0.9, 0.8, 0.7, 0.6, 0.5};  // the cheapest first
  std::size_t first = 4;                                  // hand-overs that are measured, however long they take
  std::chrono::milliseconds time{60'000};                 // the others too, where all are expected to end within it
};

/// Measures each level of method rectify in the layers LayerRange::by_depth, without learned corrections. Options and
/// errors are those of measure_profile; nothing when stopped, when no hand-over could be measured, and for a model with
/// too few layers.
std::optional<RelayLevels> measure_levels(LocalEngine& engine, std::span<const CalibrationHandOver> hand_overs,
                                          const ProfilerOptions& options, const LevelOptions& levels = {});

/// A prompt that was measured: what its guard saw, and its divergence.
struct GuardPoint {
  double left = 0.0, divergence = 0.0;
};
/// The geometric mean of divergence / left; 0: nothing was measured.
double fit_guard(std::span<const GuardPoint> points);

/// The level of the mean divergences of turns: their mean, and the 95 % quantile of the next turn by a log-normal
/// distribution (next_margin).
RelayLevel level_of(double reuse, std::span<const double> divergences);

}  // namespace baton
