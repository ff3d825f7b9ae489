// SPDX-License-Identifier: Apache-2.0
// The effect of corrections: the distance of rectify's distributions from those of full prefill, with and without them.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <baton/learn.h>

#include "sdk/src/internal.h"

namespace baton::inline v1 {

/// How far a method is from full prefill over a turn's answers.
struct Divergence {
  double log_kl = 0.0;  // sum over answers of the logarithm of their KL divergence, in nats, summed over tokens
  int answers = 0;
  int changed = 0;  // answers of which some token is no longer the likeliest
};

struct TurnDivergence {
  Divergence plain;
  Divergence corrected;
};

/// Runs the workflow over the inputs one after the other: in full, then, forced to the same answers, with method
/// rectify as the workflow has it but for min_tokens, which is 1, without and with what the engine's models have for
/// corrections. By turn. Runs that fail are left out. on_progress: fraction done.
std::map<std::string, TurnDivergence> check_corrections(const Engine& engine, const Workflow& workflow,
                                                        const std::vector<std::map<std::string, std::string>>& inputs,
                                                        std::uint64_t seed, const std::stop_token& stop,
                                                        const std::function<void(double)>& on_progress);

/// The workflow with another method and other options of reuse.
Workflow with_method(const Workflow& workflow, const Method& method, const std::function<void(ReuseOptions&)>& change);

}  // namespace baton::inline v1
