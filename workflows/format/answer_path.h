// SPDX-License-Identifier: Apache-2.0
// Answers as values: what stands behind agent_<id>_answer.field.0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workflows/format/spec.h"

namespace baton {

/// Why an agent with this `output` has no answer with these members, as far as the file says; empty: it may have one.
std::string answer_problem(const OutputSpec& output, const std::vector<std::string>& path);

/// The part of an answer behind the members of `path`: the text of a string, other values as JSON, the answer itself
/// without a path. Nothing where it has no such member, or is not JSON.
std::optional<std::string> answer_part(const std::string& answer, const std::vector<std::string>& path);

}  // namespace baton
