// SPDX-License-Identifier: Apache-2.0
// compile: the one pass from a workflow's text to its plan. Everything that can be checked without a model is checked
// here, once; docs/yaml.md lists the error codes.
#pragma once

#include <filesystem>
#include <string_view>

#include "workflows/plan/plan.h"

namespace baton {

/// Reads, checks, expands and plans a file; the plan holds the spec. Throws WorkflowError with every mistake found.
/// Loads no model.
Plan compile(const std::filesystem::path& file, const ReadOptions& options = {});

/// The same from bytes; `file` names them in errors and is where relative paths start.
Plan compile(std::string_view yaml, const std::filesystem::path& file, const ReadOptions& options = {});

/// The same from a spec that a program made.
Plan compile(WorkflowSpec spec);

}  // namespace baton
