// SPDX-License-Identifier: Apache-2.0
// Tools: what an agent may run before its prompt is built. Results fill condition_<agent>_current.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <baton/tool_call.h>

namespace baton {

/// Implementations are called from several threads at once. A throw is a failed call.
class Tool {
 public:
  virtual ~Tool() = default;
  virtual std::string name() const = 0;
  /// Empty when the options are sound, otherwise what is wrong. Called when a workflow is loaded.
  virtual std::string check(const std::map<std::string, std::string>& options) const = 0;
  virtual ToolResult call(const ToolCall& call) const = 0;
};

/// Tools by name. Not thread-safe while tools are added; const access is.
class ToolRegistry {
 public:
  /// With the built-in tools (python).
  static ToolRegistry with_builtins();
  void add(std::shared_ptr<const Tool> tool);  // throws std::invalid_argument on a name taken twice
  const Tool* find(const std::string& name) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, std::shared_ptr<const Tool>> tools_;
};

}  // namespace baton
