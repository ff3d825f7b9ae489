// SPDX-License-Identifier: Apache-2.0
// The python tool: runs the last fenced code block of a text, or the code of a call, in a separate, confined process
// and returns its output. Functions of a workflow run in the same way.
#pragma once

#include <memory>

#include "agents/sandbox.h"
#include "agents/tool.h"

namespace baton {

/// Returns the tool "python". Its options, all as text, are timeout ("10s"), memory ("512MiB"), interpreter (a path, or
/// a name to search for; "python3"), and before and after: code that runs in front of the block and behind it. The
/// result is the code's standard output and error, at most 64 KiB; ok when the code ended without an error.
std::shared_ptr<const Tool> make_python_tool(SandboxLayers layers = {});

/// A tool of the workflow's own: `code` runs with the call's arguments in the dictionary `arguments`, in the sandbox of
/// the tool python and with its options. What it prints is the result.
std::shared_ptr<const Tool> make_python_function(std::string name, ToolDefinition definition, std::string code,
                                                 SandboxLayers layers = {});

}  // namespace baton
