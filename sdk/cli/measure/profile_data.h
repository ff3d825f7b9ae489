// SPDX-License-Identifier: Apache-2.0
// Hand-overs to profile a model with, out of real runs of a workflow over a dataset.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <baton/baton.h>
#include <baton/preview.h>
#include <baton/profile.h>

#include "sdk/cli/console/options.h"

namespace baton::cli {

/// Runs the workflow with method full and takes `count` hand-overs from as many questions as there are, of different
/// pairs of agents. Fewer when interrupted or when the dataset gives no more. Throws Failure when it gives none.
std::vector<HandOver> hand_overs_of_runs(const std::string& workflow_file, const std::string& dataset,
                                         const std::string& model, const EngineArguments& engine, std::size_t count,
                                         std::uint64_t seed);

}  // namespace baton::cli
