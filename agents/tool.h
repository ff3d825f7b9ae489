// SPDX-License-Identifier: Apache-2.0
// Tools that run before an agent's prompt is built, where a result fills condition_<agent>_current, or when the model
// calls them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <baton/isolation.h>
#include <baton/tool_call.h>

namespace baton {

/// Implementations are called concurrently. A call that throws is a failed call.
class Tool {
 public:
  virtual ~Tool() = default;
  virtual std::string name() const = 0;
  /// Returns the first error in the options, or an empty text. Called when a workflow is loaded.
  virtual std::string check(const std::map<std::string, std::string>& options) const = 0;
  virtual ToolResult call(const ToolCall& call) const = 0;
  /// What a model is told of the tool. Without parameters, no model can call it.
  virtual ToolDefinition definition() const { return {}; }
  /// Returns what confines the code that call() runs, where it runs any. May throw, as call() may.
  virtual std::vector<IsolationFact> isolation() const { return {}; }
};

/// Tools by name. Const access is thread-safe; adding tools is not.
class ToolRegistry {
 public:
  /// Returns a registry with the built-in tools (python).
  static ToolRegistry with_builtins();
  void add(std::shared_ptr<const Tool> tool);  // throws std::invalid_argument for a name that is registered already
  const Tool* find(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, std::shared_ptr<const Tool>> tools_;
};

}  // namespace baton
