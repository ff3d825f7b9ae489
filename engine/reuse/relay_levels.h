// SPDX-License-Identifier: Apache-2.0
// RelayLevels: what rectification costs and leaves on one model, as its profile measured it. Method auto chooses a
// level by its tolerance.
#pragma once

#include <string>
#include <vector>

#include "engine/reuse/options.h"

namespace baton {

constexpr double kMinDivergence = 1e-9;  // nats; the least of which a logarithm is taken
/// Reuse at which the guard decides. Above, it passes too much; below, what it looks at is too small to tell.
constexpr double kMinGuardedReuse = 0.75, kMaxGuardedReuse = 0.8;

/// The divergence that remains when the fraction `reuse` of the (token, layer) entries of handed-over texts is reused.
struct RelayLevel {
  double reuse = 0.0;
  double divergence = 0.0;  // mean KL divergence of a turn from full prefill, nats per token
  double high = 0.0;        // 95 % of the turns are expected to stay below this, nats per token
  bool operator==(const RelayLevel&) const = default;
};

struct RelayLevels {
  LayerRange range;                // of all levels, because authors keep hidden states of one layer
  std::vector<RelayLevel> levels;  // the cheapest (highest reuse) first; empty: not measured
  /// The divergence of a prompt is expected to be this times what its guard (schedule.h) measures: both are quadratic
  /// in small changes. 0: unknown.
  double guard_scale = 0.0;
  std::int32_t turns = 0;  // measured turns of a place that corrected the levels (relay_history.h); 0: the model's
  std::string unguarded;   // why the guard cannot decide in the place; empty: it can

  /// The cheapest level that is expected to stay within the tolerance: in 95 % of the turns or, at kMinGuardedReuse to
  /// kMaxGuardedReuse, on average, since the guard then decides each prompt, if it is known and not `unguarded`. Null:
  /// none.
  const RelayLevel* within(double tolerance) const;
  /// Completes options of method auto: takes the range and the reuse of a level, or becomes exact and says why.
  void complete(ReuseOptions& reuse) const;
  bool operator==(const RelayLevels&) const = default;
};

/// The beginning of a reason that follows from measured turns; empty without them.
std::string measured_turns(std::int32_t turns);

}  // namespace baton
