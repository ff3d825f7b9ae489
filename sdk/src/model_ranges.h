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
#include "engine/learning/hand_over_measurement.h"
#include "engine/learning/profile_files.h"
#include "workflows/plan/plan.h"

namespace baton {

/// `count` hand-overs whose answers the model still has to write. What stands before an answer in the producer's and in
/// the consumer's prompt differs in text and in length; prompts with an answer of `max_tokens` fit the model's context
/// if that is possible at all. The same seed gives the same hand-overs. Throws ModelError (chat template).
std::vector<CalibrationHandOver> synthetic_hand_overs(const Model& model, std::int32_t count, std::int32_t max_tokens,
                                                      std::uint64_t seed);

/// `count` hand-overs of given texts: lists of facts, which another agent is asked about. Throws ModelError.
std::vector<CalibrationHandOver> document_hand_overs(const Model& model, std::int32_t count, std::uint64_t seed);

// The layers that opened models recompute: checked, read from profiles, or measured.

/// The inputs of a run.
using Inputs = std::map<std::string, std::string>;

/// Throws WorkflowError if the layers that the file gives end at none of the model's, which it calls `name`.
void check_layers(const WorkflowSpec& spec, const std::string& name, const Model& model);
/// Throws WorkflowError if the model, whose layers are known by now, cannot leave the fraction `reuse` untouched.
void check_reuse(const WorkflowSpec& spec, const ReuseOptions& reuse, const std::string& name,
                 const LocalEngine& engine);

/// Whether a text that the turn reads may be relayed and can be long enough to be. `inputs`: null, they are not known.
bool can_be_relayed(const Plan& plan, const PlannedTurn& turn, const Inputs* inputs, const Model& model);

/// Finds the layers of RelayCaching's own profiler for a model, from its profile if it has one, and sets
/// Calibration::paper_range. Leaves them unset when stopped.
using PaperRanges = void (*)(LocalEngine& engine, const std::optional<StoredProfile>& found,
                             const std::function<void(double share)>& on_progress, const std::stop_token& stop);
/// For programs with the laboratory, at their start; the product's workflow files cannot ask for those layers.
void set_paper_ranges(PaperRanges ranges);

/// Sets the layers that rectify recomputes, unless the engine has them: from the model's profile, else those of its
/// relay levels if they were measured, else LayerRange::by_depth. `paper`: the layers that RelayCaching's profiler
/// finds (set_paper_ranges). Leaves them unset when stopped. Throws ModelError for a profile that is not one and for a
/// model without a range, EngineError.
void ensure_layer_range(LocalEngine& engine, bool paper, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop);

/// Sets the engine's relay levels, by which method auto decides, unless it has some: from the model's file, else
/// measured with synthetic hand-overs, fewer if the model is slow, and kept in the user's cache. Leaves them unset
/// when stopped, and if they cannot be measured: auto is then exact. Throws ModelError for a file that does not hold
/// levels, EngineError.
void ensure_relay_levels(LocalEngine& engine, const std::function<void(double share)>& on_progress,
                         const std::stop_token& stop);

/// Gives the engine the history of its places that the user's cache has, if any.
void read_relay_history(LocalEngine& engine);
/// Writes it there, if it has changed.
void keep_relay_history(LocalEngine& engine);

/// Names of the models between which answers move; if all agents have one model, that one with itself.
std::set<std::pair<std::string, std::string>> hand_overs_between(const Plan& plan);

/// The profile of a pair of models, by which `reader` recomputes a group of layers in KV that `author` made. baton-lab
/// measures it. Throws ModelError if there is none in the user's cache, and for a file that is not one.
StoredPair pair_of(const Model& author, const Model& reader);

}  // namespace baton
