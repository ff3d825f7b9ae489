// SPDX-License-Identifier: Apache-2.0
// Checks of an agent's output: a pattern that finds the answer in it, or what the whole of it must be.
#pragma once

#include <string>

#include "engine/text/constrain/grammar.h"
#include "workflows/format/spec.h"

namespace baton {

struct CheckedOutput {
  std::string answer;   // the first group of the pattern's last match, the JSON that fits the schema, or the output
  std::string problem;  // empty: the output passes
};

/// `grammar`: that of the spec. JSON may stand alone or in the last fenced code block. A pattern that takes
/// too long is a problem, not an exception.
CheckedOutput check_output(const OutputSpec& spec, const Grammar* grammar, const std::string& output);

}  // namespace baton
