// SPDX-License-Identifier: Apache-2.0
// What `run`, `resume` and `replay` have in common.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <baton/baton.h>

#include "sdk/console/options.h"
#include "sdk/trace/trace_target.h"

namespace baton::cli {

struct RunArguments {
  WorkflowArguments workflow;
  InputArguments inputs;
  EngineArguments engine;
  std::vector<std::string> answers;  // "step=text"
  std::optional<std::uint64_t> seed;
  std::string timeout;
  bool json = false;
  std::string events;
  std::string record;
  std::optional<TraceTarget> trace;
  bool quiet = false;
  bool verbose = false;
  std::map<std::string, std::string> given;  // resume: values in place of `inputs`
  std::vector<AgentFinished> finished;       // resume: turns that are not run again
  bool resumes = false;                      // the folder of the record may exist, and its journal does
};

/// Returns the exit code.
int run(const RunArguments& arguments);

}  // namespace baton::cli
