// SPDX-License-Identifier: Apache-2.0
// What reuse methods know of opened models: layers that are recomputed and relay levels, from files.
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
#include "engine/learning/profile_files.h"
#include "engine/local_engine.h"
#include "workflows/plan/plan.h"

namespace baton {

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
/// relay levels, else LayerRange::by_depth. `paper`: the layers that RelayCaching's profiler
/// finds (set_paper_ranges). Leaves them unset when stopped. Throws ModelError for a profile that is not one and for a
/// model without a range, EngineError.
void ensure_layer_range(LocalEngine& engine, bool paper, const std::function<void(double share)>& on_progress,
                        const std::stop_token& stop);

/// Sets the engine's relay levels, by which method auto decides, unless it has some: from the model's file, the user's
/// cache or those that are installed; without any they are assumed, and turns that auto measures make them the model's.
/// Throws ModelError for a file in the model's folder that does not hold levels.
void ensure_relay_levels(LocalEngine& engine);

/// Gives the engine the history of its places that the user's cache has, if any.
void read_relay_history(LocalEngine& engine);
/// Writes it there, if it has changed. Returns why it could not be written; empty: it was, or it has not changed.
std::string keep_relay_history(LocalEngine& engine);

/// Names of the models between which answers move; if all agents have one model, that one with itself.
std::set<std::pair<std::string, std::string>> hand_overs_between(const Plan& plan);

/// The profile of a pair of models, by which `reader` recomputes a group of layers in KV that `author` made. baton-lab
/// measures it. Throws ModelError if there is none in the user's cache, and for a file that is not one.
StoredPair pair_of(const Model& author, const Model& reader);

}  // namespace baton
