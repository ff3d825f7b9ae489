// SPDX-License-Identifier: Apache-2.0
// Checks of an agent's output: a pattern that finds the answer in it, or a JSON Schema that it must match.
#pragma once

#include <string>

#include "workflows/format/spec.h"

namespace baton {

struct CheckedOutput {
  std::string answer;   // the first group of the pattern's last match, or the JSON that fits the schema
  std::string problem;  // empty: the output passes
};

/// JSON may stand alone or in the last fenced code block. A pattern that takes too long is a problem, not an exception.
CheckedOutput check_output(const OutputSpec& spec, const std::string& output);

}  // namespace baton
