// SPDX-License-Identifier: Apache-2.0
// A tool that is a function of the test.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "agents/tools/tool.h"
#include "workflows/format/spec.h"

namespace baton::test {

class FunctionTool : public Tool {
 public:
  FunctionTool(std::string name, std::function<ToolResult(const ToolCall&)> function, ToolDefinition definition = {})
      : name_(std::move(name)), function_(std::move(function)), definition_(std::move(definition)) {}
  std::string name() const override { return name_; }
  std::string check(const std::map<std::string, std::string>&) const override { return {}; }
  ToolResult call(const ToolCall& call) const override { return function_(call); }
  ToolDefinition definition() const override { return definition_; }

 private:
  std::string name_;
  std::function<ToolResult(const ToolCall&)> function_;
  ToolDefinition definition_;
};

inline ToolSpec tool_spec(const std::string& tool, const std::string& from) {
  ToolSpec spec;
  spec.tool = tool;
  spec.from = from;
  return spec;
}

}  // namespace baton::test
