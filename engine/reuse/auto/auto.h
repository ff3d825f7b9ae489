// SPDX-License-Identifier: Apache-2.0
// Method auto: handed-over texts are rectified if that is expected to stay within a tolerance, by what was measured of
// the model (RelayLevels) and of the place (RelayHistory); the rest is exact and computed ahead.
#pragma once

#include "engine/reuse/rectify/rectify.h"

namespace baton {

struct AutoOptions {
  RectifyOptions rectify;
  /// Texts are rectified only if the mean KL divergence from full prefill over a turn is expected to be at most this,
  /// in nats per token.
  float tolerance = 0.02f;
  bool history = true;  // the turns of the prompt's place are measured, and decide
};

const Method& auto_method();

/// Takes the range and the reuse of the cheapest level within decision.tolerance, or becomes exact and says why.
void choose_level(const RelayLevels& levels, ReuseDecision& decision);

/// The options of the measurement of a turn: rectified at the level nearest to 80 % reuse, without a guard, which could
/// end it. `levels` must not be empty.
ReuseOptions measuring_options(const ReuseOptions& of_turn, const ReuseDecision& decision,
                               const std::vector<RelayLevel>& levels);

/// The divergence that a guard's measure predicts, nats per token; below 0: unknown.
double expected_by_guard(const RelayLevels& levels, float left);

}  // namespace baton
