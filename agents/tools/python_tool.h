// SPDX-License-Identifier: Apache-2.0
// The options of the python tool, parsed from text.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agents/tools/sandbox/sandbox.h"
#include "agents/tools/tool.h"

namespace baton {

struct PythonOptions {
  std::filesystem::path interpreter;  // absolute path of an existing file
  std::chrono::milliseconds timeout{10000};
  std::int64_t memory_bytes = std::int64_t{512} << 20;
  std::string before;  // code in front of the block
  std::string after;   // code behind the block
};

/// Parses the options. Throws std::invalid_argument with the option, the value found and the value expected.
PythonOptions parse_python_options(const std::map<std::string, std::string>& options,
                                   std::chrono::milliseconds default_timeout);

/// Returns what an installed interpreter reads: the program and each link to it, and, next to the folder of each of
/// these, `pyvenv.cfg`, and `lib` and `lib64` if they hold a Python library. It is never the whole folder that an
/// interpreter is installed in, which may be somebody's home.
std::vector<std::filesystem::path> python_files(const std::filesystem::path& interpreter);

// The python tool: runs the last fenced code block of a text, or the code of a call, in a separate, confined process
// and returns its output. Functions of a workflow run in the same way.

/// Returns the tool "python". Its options, all as text, are timeout ("10s"), memory ("512MiB"), interpreter (a path, or
/// a name to search for; "python3"), and before and after: code that runs in front of the block and behind it. The
/// result is the code's standard output and error, at most 64 KiB; ok when the code ended without an error.
std::shared_ptr<const Tool> make_python_tool(SandboxLayers layers = {});

/// A tool of the workflow's own: `code` runs with the call's arguments in the dictionary `arguments`, in the sandbox of
/// the tool python and with its options. Its output is the result.
std::shared_ptr<const Tool> make_python_function(std::string name, ToolDefinition definition, std::string code,
                                                 SandboxLayers layers = {});

}  // namespace baton
