// SPDX-License-Identifier: Apache-2.0
// One call of a tool and its result.
#pragma once

#include <chrono>
#include <map>
#include <stop_token>
#include <string>

namespace baton::inline v1 {

/// What a tool is called with.
struct ToolCall {
  std::string text;                            // the tool's input: the output named by `from`
  std::map<std::string, std::string> options;  // the tool's other keys in the YAML, as text
  std::chrono::milliseconds timeout{10000};    // the longest time that the caller will wait; below 0: 0
  std::stop_token stop;                        // the tool must return soon once a stop is requested
  std::string arguments = {};                  // of a call by a model: a JSON object of the tool's schema; else empty
};

struct ToolResult {
  bool ok = true;
  std::string text;       // the value of condition_<agent>_current, or what the model gets; may be an error message
  std::string code = {};  // the code that was run, if any, for the record
};

/// What a model is told of a tool that it may call.
struct ToolDefinition {
  std::string description;
  std::string parameters;  // a JSON Schema (the subset of docs/yaml.md) of the arguments, an object; empty: a model
                           // cannot call the tool
};

}  // namespace baton::inline v1
