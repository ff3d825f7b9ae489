// SPDX-License-Identifier: Apache-2.0
// One call of a tool, and what it gives.
#pragma once

#include <chrono>
#include <map>
#include <stop_token>
#include <string>

namespace baton::inline v1 {

struct ToolCall {
  std::string text;                            // what the tool works on: the output named by `from`
  std::map<std::string, std::string> options;  // the tool's other keys in the YAML, as text
  std::chrono::milliseconds timeout{10000};    // how long the caller will wait
  std::stop_token stop;                        // return soon once this is requested
};

struct ToolResult {
  bool ok = true;
  std::string text;  // fills condition_<agent>_current, an error message included
};

}  // namespace baton::inline v1
