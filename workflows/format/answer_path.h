// SPDX-License-Identifier: Apache-2.0
// Answers as values: what stands behind agent_<id>_answer.field.0.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "workflows/format/placeholder.h"

namespace baton {

/// Why an agent with this `output` has no answer with these members, as far as the file says; empty: it may have one.
std::string answer_problem(const OutputSpec& output, const std::vector<std::string>& path);

/// The texts of placeholders for an answer, by name: of a member the text of a string or another value as JSON, and the
/// answer itself. Without those that it does not have, or whose answer is not JSON.
std::map<std::string, std::string> answer_texts(const std::string& answer,
                                                const std::map<std::string, Placeholder>& names);

}  // namespace baton
