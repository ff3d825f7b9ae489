// SPDX-License-Identifier: Apache-2.0
// The options of the python tool, from text.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace baton {

struct PythonOptions {
  std::filesystem::path interpreter;  // absolute, exists
  std::chrono::milliseconds timeout{10000};
  std::int64_t memory_bytes = std::int64_t{512} << 20;
};

/// Throws std::invalid_argument naming the option, what was given and what was expected.
PythonOptions parse_python_options(const std::map<std::string, std::string>& options,
                                   std::chrono::milliseconds default_timeout);

/// The folders that an interpreter lives from: its own installation, and its virtual environment if it is of one.
std::vector<std::filesystem::path> python_folders(const std::filesystem::path& interpreter);

}  // namespace baton
