// SPDX-License-Identifier: Apache-2.0
// One call of a tool and its result.
#pragma once

#include <chrono>
#include <map>
#include <stop_token>
#include <string>

namespace baton::inline v1 {

struct ToolCall {
  std::string text;                            // the tool's input: the output named by `from`
  std::map<std::string, std::string> options;  // the tool's other keys in the YAML, as text
  std::chrono::milliseconds timeout{10000};    // the longest time that the caller will wait; below 0: 0
  std::stop_token stop;                        // the tool must return soon once a stop is requested
};

struct ToolResult {
  bool ok = true;
  std::string text;  // the value of condition_<agent>_current; may be an error message
};

}  // namespace baton::inline v1
