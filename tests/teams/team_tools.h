// SPDX-License-Identifier: Apache-2.0
// The tools of random teams: they answer, answer nothing, fail, or throw. Models call `look`.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "tests/support/function_tool.h"

namespace baton::test {

inline ToolRegistry team_tools() {
  ToolRegistry tools;
  tools.add(std::make_shared<FunctionTool>("measure", [](const ToolCall& call) -> ToolResult {
    const std::string& kind = call.options.at("kind");
    if (kind == "nothing") return {true, ""};
    if (kind == "echo") return {true, "heard: " + call.text};
    if (kind == "odd" && call.text.size() % 3 == 0) throw std::runtime_error("a third of the texts is too odd");
    return {call.text.size() % 2 == 0, "a text of " + std::to_string(call.text.size()) + " bytes"};
  }));
  tools.add(std::make_shared<FunctionTool>(
      "look",
      [](const ToolCall& call) -> ToolResult {
        if (call.arguments.size() % 3 == 0) throw std::runtime_error("a third of the calls sees nothing");
        return {call.arguments.size() % 2 == 0, "seen: " + call.arguments};
      },
      ToolDefinition{"Looks at a thing.", R"({"properties": {"thing": {"enum": ["a", "sea", "hat"]},
                                              "times": {"type": "integer", "minimum": 1, "maximum": 9}},
                                              "required": ["thing"], "additionalProperties": false})"}));
  return tools;
}

}  // namespace baton::test
