// SPDX-License-Identifier: Apache-2.0
// What is behind the handles of baton/c.h that more than one file opens.
#pragma once

#include <functional>

#include "sdk/src/c_support.h"

struct baton_workflow {
  baton::Workflow workflow;
};

struct baton_engine {
  baton::Engine engine;
};

namespace baton::c_face {

/// A run that `start` starts with the host's options.
baton_run* new_run(const Workflow& workflow, const baton_run_options* options,
                   const std::function<Run(const RunOptions& options)>& start);

}  // namespace baton::c_face
