// SPDX-License-Identifier: Apache-2.0
// The host's own tools: functions that a workflow calls before it builds an agent's prompt, or that models call.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <baton/tool_call.h>

namespace baton::inline v1 {

/// Called from several threads at once. An exception makes the call fail. In a tool, waiting for the run that
/// called it throws InputError; other runs may be waited for.
using ToolFunction = std::function<ToolResult(const ToolCall&)>;

/// Checks a tool's options when a workflow is loaded: returns an empty text for valid options, otherwise what is wrong.
using ToolCheck = std::function<std::string(const std::map<std::string, std::string>& options)>;

/// Tools by name, in addition to the built-in `python`, which one of that name replaces. A plain value: copies share
/// nothing. Concurrent reads are safe; add() must not run concurrently with other calls.
class Tools {
 public:
  /// Throws std::invalid_argument when the name is not [a-z][a-z0-9_]*, is taken, or the function is empty.
  Tools& add(const std::string& name, ToolFunction function, ToolCheck check = {});
  /// A tool that models can call too, as `{call: NAME}` in an agent's `tools`: ToolCall::arguments then fit the schema.
  /// Its name is 1 to 64 of [A-Za-z0-9_.-]. The definition's texts are no special tokens of a model. Throws
  /// std::invalid_argument also for a definition whose parameters are not the schema of an object.
  Tools& add(const std::string& name, ToolDefinition definition, ToolFunction function, ToolCheck check = {});

  std::vector<std::string> names() const;  // names of the tools added here, sorted

  /// Calls a tool, one of these or a built-in one, as a run would. Throws std::invalid_argument for an unknown name;
  /// an exception of the tool becomes a result that is not ok.
  ToolResult call(const std::string& name, const ToolCall& call) const;

  struct Entry {
    ToolFunction function;
    ToolCheck check;
    ToolDefinition definition = {};
  };
  const std::map<std::string, Entry>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry> entries_;
};

}  // namespace baton::inline v1
