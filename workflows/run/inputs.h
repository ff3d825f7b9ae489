// SPDX-License-Identifier: Apache-2.0
// The inputs of a run: those that were given, and the workflow's defaults.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "workflows/plan/plan.h"

namespace baton {

enum class MissingInputs : std::uint8_t {
  refused,   // of a run
  left_out,  // of a preview, which shows them as unknown
};

/// Every input that the workflow declares, by name: the given text, the default, or an empty text for one that is not
/// required. Throws InputError for an unknown input, with the names that there are, for missing ones, for a value that
/// is no UTF-8, which a record could not hold, and for one that is no list of messages where it has to be.
std::map<std::string, std::string> complete_inputs(const WorkflowSpec& spec,
                                                   const std::map<std::string, std::string>& given,
                                                   MissingInputs missing = MissingInputs::refused);

/// The plan of a run with these inputs, which complete_inputs returned: its prompts have the messages of inputs. Inputs
/// that are left out stand for none. Throws InputError for a prompt that has no message left.
std::shared_ptr<const Plan> with_messages(std::shared_ptr<const Plan> plan,
                                          const std::map<std::string, std::string>& inputs);

}  // namespace baton
