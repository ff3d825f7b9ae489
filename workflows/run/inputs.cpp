// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include <baton/errors.h>

namespace baton {

std::map<std::string, std::string> complete_inputs(const WorkflowSpec& spec,
                                                   const std::map<std::string, std::string>& given,
                                                   MissingInputs missing) {
  std::vector<std::string> known;
  for (const InputSpec& input : spec.inputs) known.push_back(input.name);
  for (const auto& [name, text] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string message = fmt::format("unknown input '{}'; the workflow has: {}", name,
                                      known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    if (const std::string near = closest(name, known); !near.empty())
      message += fmt::format("; did you mean '{}'?", near);
    throw InputError(message);
  }

  std::map<std::string, std::string> inputs;
  std::vector<std::string> lacking;
  for (const InputSpec& input : spec.inputs) {
    if (const auto at = given.find(input.name); at != given.end()) {
      inputs[input.name] = at->second;
    } else if (input.default_value) {
      inputs[input.name] = *input.default_value;
    } else if (!input.required && missing == MissingInputs::refused) {
      inputs[input.name] = "";
    } else {
      lacking.push_back(input.name);
    }
  }
  if (!lacking.empty() && missing == MissingInputs::refused)
    throw InputError(fmt::format("missing input: '{}'", fmt::join(lacking, "', '")), lacking);
  return inputs;
}

}  // namespace baton
