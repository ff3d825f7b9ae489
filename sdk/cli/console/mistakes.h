// SPDX-License-Identifier: Apache-2.0
// How the mistakes of a workflow file are shown.
#pragma once

#include <set>
#include <string>

#include <baton/errors.h>

namespace baton::cli {

/// All of them to stderr, each with its place. Returns their codes.
std::set<std::string> note_mistakes(const WorkflowError& error);

/// On a terminal one line that says where to read more, once for all codes; elsewhere nothing.
void note_explain(const std::set<std::string>& codes);

}  // namespace baton::cli
