// SPDX-License-Identifier: Apache-2.0
// The host's functions as tools of the agents layer.
#include "sdk/src/internal.h"

#include <fmt/format.h>

#include <algorithm>

#include "agents/mcp/tools.h"
#include "engine/text/schema/schema.h"

namespace baton::inline v1 {
namespace {

bool is_name(const std::string& name) {
  const auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !name.empty() && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; });
}

class HostTool : public Tool {
 public:
  HostTool(std::string name, Tools::Entry entry) : name_(std::move(name)), entry_(std::move(entry)) {}
  std::string name() const override { return name_; }
  std::string check(const std::map<std::string, std::string>& options) const override {
    return entry_.check ? entry_.check(options) : std::string();
  }
  ToolResult call(const ToolCall& call) const override { return entry_.function(call); }
  ToolDefinition definition() const override { return entry_.definition; }

 private:
  std::string name_;
  Tools::Entry entry_;
};

}  // namespace

Tools& Tools::add(const std::string& name, ToolFunction function, ToolCheck check) {
  return add(name, ToolDefinition(), std::move(function), std::move(check));
}

Tools& Tools::add(const std::string& name, ToolDefinition definition, ToolFunction function, ToolCheck check) {
  if (!is_name(name))
    throw std::invalid_argument(fmt::format("invalid tool name '{}': expected [a-z][a-z0-9_]*", name));
  if (name == kMcpTool || name == kAskTool)
    throw std::invalid_argument(fmt::format("invalid tool name '{}': it has a meaning of its own in workflows", name));
  if (!function) throw std::invalid_argument(fmt::format("tool '{}' has no function", name));
  if (!definition.parameters.empty()) {
    if (const std::string wrong = check_parameters(definition.parameters); !wrong.empty())
      throw std::invalid_argument(fmt::format("tool '{}': parameters: {}", name, wrong));
  }
  if (!entries_.emplace(name, Entry{std::move(function), std::move(check), std::move(definition)}).second) {
    throw std::invalid_argument(fmt::format("tool '{}' is registered already", name));
  }
  return *this;
}

std::vector<std::string> Tools::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

ToolResult Tools::call(const std::string& name, const ToolCall& call) const {
  const auto registry = make_registry(*this);
  const Tool* tool = registry->find(name);
  if (tool == nullptr) throw std::invalid_argument(fmt::format("unknown tool '{}'", name));
  try {
    return tool->call(call);
  } catch (const std::exception& error) {
    return {false, error.what()};
  }
}

std::shared_ptr<const ToolRegistry> make_registry(const Tools& tools) {
  auto registry = std::make_shared<ToolRegistry>(ToolRegistry::with_builtins());
  for (const auto& [name, entry] : tools.entries()) registry->add(std::make_shared<HostTool>(name, entry));
  return registry;
}

}  // namespace baton::inline v1
