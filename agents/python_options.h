// SPDX-License-Identifier: Apache-2.0
// The options of the python tool, parsed from text.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

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

/// Returns what an installed interpreter reads: the program and each link to it, and next to the folder of each of
/// these `lib` and `lib64`, where they hold a Python library, and `pyvenv.cfg`. It is never the whole folder that an
/// interpreter is installed in, which may be somebody's home.
std::vector<std::filesystem::path> python_files(const std::filesystem::path& interpreter);

}  // namespace baton
