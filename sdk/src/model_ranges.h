// SPDX-License-Identifier: Apache-2.0
// Hand-overs to profile a model with when there is no data: word problems, the model's own answers, and other agents
// that read them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "engine/learning/auto_files.h"
#include "engine/learning/level_profiler.h"
#include "engine/learning/model_profile.h"
#include "engine/learning/pair_profile.h"
#include "engine/learning/profiler.h"
#include "workflows/plan/plan.h"

namespace baton {

/// `count` hand-overs whose answers the model still has to write. What stands before an answer in the producer's and in
/// the consumer's prompt differs in text and in length; prompts with an answer of `max_tokens` fit the model's context
/// where that is at all possible. The same seed gives the same hand-overs. Throws ModelError (chat template).
std::vector<CalibrationHandOver> synthetic_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                      std::uint64_t seed);

/// `count` hand-overs of given texts: lists of facts, which another agent is asked about. Throws ModelError.
std::vector<CalibrationHandOver> document_hand_overs(const Model& model, std::int32_t count, std::uint64_t seed);

// The layers that opened models recompute: checked, read from profiles, or measured.

/// The inputs of a run.
using Inputs = std::map<std::string, std::string>;

/// Throws WorkflowError where the layers that the file gives end at none of the model's, which it calls `name`.
void check_layers(const WorkflowSpec& spec, const std::string& name, const Model& model);
/// Throws WorkflowError where the model, whose layers are known by now, cannot leave the fraction `reuse` untouched.
void check_reuse(const WorkflowSpec& spec, const ReuseOptions& reuse, const std::string& name,
                 const LocalEngine& engine);

/// Whether a text that the turn reads may be relayed and can be long enough to be. `inputs`: null, they are not known.
bool can_be_relayed(const Plan& plan, const PlannedTurn& turn, const Inputs* inputs, const Model& model);

/// Sets the layers that rectify recomputes, unless the engine has them: from the model's profile, else those of its
/// relay levels where they were measured, else LayerRange::by_depth. `paper`: the layers that RelayCaching's profiler
/// finds, where there is no profile from one made with synthetic hand-overs and kept in the user's cache (a run does
/// not write into a model's folder; `profile_model` does). Leaves them unset when stopped. Throws ModelError for a
/// profile that is not one and for a model without a range, EngineError.
void ensure_layer_range(LocalEngine& engine, bool paper, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop);

/// Sets the engine's relay levels, by which method auto decides, unless it has some: from the model's file, else
/// measured with synthetic hand-overs, fewer where the model is slow, and kept in the user's cache. Leaves them unset
/// when stopped, and where they cannot be measured: auto is then exact. Throws ModelError for a file that does not hold
/// levels, EngineError.
void ensure_relay_levels(LocalEngine& engine, const std::function<void(double share)>& on_progress,
                         const std::stop_token& stop);

/// Gives the engine the history of its places that the user's cache has, if any.
void read_relay_history(LocalEngine& engine);
/// Writes it there, if it has changed.
void keep_relay_history(LocalEngine& engine);

/// Names of the models between which answers move; where all agents have one model, that one with itself.
std::set<std::pair<std::string, std::string>> hand_overs_between(const Plan& plan);

/// The group of layers that `reader` recomputes in KV that `author` made: from the pair's profile in the user's cache,
/// else from one made with synthetic hand-overs and kept there. Nothing when stopped. Throws as above.
std::optional<StoredPair> find_group(LocalEngine& author, LocalEngine& reader,
                                     const std::function<void(double share)>& on_progress, const std::stop_token& stop);

}  // namespace baton
