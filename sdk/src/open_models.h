// SPDX-License-Identifier: Apache-2.0
// A plan with its models opened, for a run and for other parts of the library.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sdk/src/internal.h"

namespace baton::inline v1 {

struct OpenPlan {
  std::shared_ptr<const Plan> plan;  // with the layers that its method recomputes, where the file leaves them open
  std::map<std::string, std::shared_ptr<LocalEngine>> engines;      // by ModelSpec name, of the models in this process
  std::map<std::string, std::shared_ptr<InferenceEngine>> servers;  // the same, of those on servers
  double load_ms = 0.0;     // opening these models, whenever that was; each counts once
  double measure_ms = 0.0;  // measuring them now, at their first use by the workflow's method

  /// Each engine of this process once, in the order of the plan's turns.
  std::vector<std::shared_ptr<LocalEngine>> distinct_engines() const;
};

/// Opens those of the workflow's models that are not open yet, and measures the layers that its method needs to know.
/// When stopped it may leave the latter out. Throws ResourceError, and WorkflowError for a setting that does not fit a
/// model.
OpenPlan open_models(const Engine& engine, const Workflow& workflow, const std::stop_token& stop = {});

}  // namespace baton::inline v1
