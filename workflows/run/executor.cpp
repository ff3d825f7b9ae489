// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/executor.h"

#include <fmt/format.h>

#include <stdexcept>

#include "workflows/run/executor_loop.h"

namespace baton {
namespace {

std::map<std::string, std::string> complete_inputs(const WorkflowSpec& spec,
                                                   const std::map<std::string, std::string>& given) {
  std::map<std::string, std::string> inputs;
  for (const InputSpec& input : spec.inputs) {
    const auto at = given.find(input.name);
    if (at != given.end()) {
      inputs[input.name] = at->second;
    } else if (input.default_value) {
      inputs[input.name] = *input.default_value;
    } else if (input.required) {
      throw std::invalid_argument(fmt::format("workflow '{}': the input '{}' is missing", spec.name, input.name));
    } else {
      inputs[input.name] = "";
    }
  }
  for (const auto& [name, text] : given) {
    if (inputs.count(name) != 0) continue;
    std::string known;
    for (const InputSpec& input : spec.inputs) known += (known.empty() ? "" : ", ") + input.name;
    throw std::invalid_argument(fmt::format("workflow '{}' has no input '{}'; its inputs: {}", spec.name, name,
                                            known.empty() ? "none" : known));
  }
  return inputs;
}

}  // namespace

RunRecord run_plan(const RunRequest& request) {
  if (!request.plan || !request.plan->spec) throw std::invalid_argument("run_plan: no plan");
  if (!request.engines) throw std::invalid_argument("run_plan: no source of engines");
  const std::map<std::string, std::string> inputs = complete_inputs(*request.plan->spec, request.inputs);
  return RunLoop(request, inputs).run();
}

}  // namespace baton
