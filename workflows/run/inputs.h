// SPDX-License-Identifier: Apache-2.0
// The inputs of a run: those that were given, and the workflow's defaults.
#pragma once

#include <map>
#include <string>

#include "workflows/format/spec.h"

namespace baton {

enum class MissingInputs : std::uint8_t {
  refused,   // of a run
  left_out,  // of a preview, which shows them as unknown
};

/// Every input that the workflow declares, by name: the given text, the default, or an empty text for one that is not
/// required. Throws InputError for an unknown input, with the names that there are, and for missing ones.
std::map<std::string, std::string> complete_inputs(const WorkflowSpec& spec,
                                                   const std::map<std::string, std::string>& given,
                                                   MissingInputs missing = MissingInputs::refused);

}  // namespace baton
