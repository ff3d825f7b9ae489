// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/relay_levels.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {

std::string measured_turns(std::int32_t turns) {
  return turns == 0 ? "" : fmt::format("{} measured turns of this place: ", turns);
}

const RelayLevel* RelayLevels::within(double tolerance) const {
  const bool guarded = guard_scale > 0.0 && unguarded.empty();
  const auto found = std::find_if(levels.begin(), levels.end(), [&](const RelayLevel& level) {
    const bool watched = guarded && level.reuse >= kMinGuardedReuse && level.reuse <= kMaxGuardedReuse;
    return level.high <= tolerance || (watched && level.divergence <= tolerance);
  });
  return found == levels.end() ? nullptr : &*found;
}

void RelayLevels::complete(ReuseOptions& reuse) const {
  if (!reuse.range.given()) reuse.range = range;
  if (!takes_segments(reuse)) return;
  if (const RelayLevel* level = within(reuse.tolerance)) {
    reuse.reuse = level->reuse;
    reuse.predicted = static_cast<float>(level->divergence);
    reuse.turns = turns;
    if (guard_scale > 0.0) reuse.max_left = static_cast<float>(reuse.tolerance / guard_scale);
    return;
  }
  reuse.exact_because =
      levels.empty() ? std::string("nothing is known about rectification on this model")
                     : fmt::format("{}rectification is expected to reach {:.3g} nats {}{}; the tolerance is {:.3g}",
                                   measured_turns(turns), levels.back().high,
                                   turns > 0 ? fmt::format("at {:.0f} %", 100 * levels.back().reuse) : "on this model",
                                   unguarded.empty() ? "" : " and " + unguarded, reuse.tolerance);
  reuse.tolerance = 0.0f;
}

}  // namespace baton
