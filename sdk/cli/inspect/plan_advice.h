// SPDX-License-Identifier: Apache-2.0
// What a plan shows to be wrong, and what would make it cheaper.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <baton/preview.h>
#include <baton/workflow.h>

namespace baton::cli {

/// One sentence for each prompt that does not fit, or may not fit, into its model's context, and for each placeholder
/// that stays empty with these inputs.
std::vector<std::string> plan_warnings(const Workflow& workflow, const std::optional<Preview>& preview,
                                       const std::map<std::string, std::string>& inputs);

/// One sentence for each text that several prompts of a model hold behind different beginnings.
std::vector<std::string> plan_hints(const Workflow& workflow, const std::optional<Preview>& preview);

/// "solver, checker#2", of indices of turns.
std::string names_of(const std::vector<int>& turns, const std::vector<TurnInfo>& all);

}  // namespace baton::cli
