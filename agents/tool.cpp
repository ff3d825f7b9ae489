// SPDX-License-Identifier: Apache-2.0
#include "agents/tool.h"

#include <stdexcept>

#include "agents/python_tool.h"

namespace baton {

ToolRegistry ToolRegistry::with_builtins() {
  ToolRegistry registry;
  registry.add(make_python_tool());
  return registry;
}

void ToolRegistry::add(std::shared_ptr<const Tool> tool) {
  std::string name = tool->name();
  const auto [at, added] = tools_.try_emplace(std::move(name), std::move(tool));
  if (!added) throw std::invalid_argument("tool '" + at->first + "' is registered already");
}

const Tool* ToolRegistry::find(const std::string& name) const {
  const auto at = tools_.find(name);
  return at == tools_.end() ? nullptr : at->second.get();
}

std::vector<std::string> ToolRegistry::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tool] : tools_) names.push_back(name);
  return names;
}

}  // namespace baton
