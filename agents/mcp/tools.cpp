// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>

#include "engine/base/json/json_reader.h"
#include "engine/text/constrain/call_grammar.h"

namespace baton {
namespace {

constexpr const char* kServer = "server";
constexpr std::array<std::string_view, 3> kUses = {"tool", "resource", "prompt"};

/// A tool of a server, for a model.
class ServerTool : public Tool {
 public:
  ServerTool(std::shared_ptr<const McpServer> server, std::string tool)
      : server_(std::move(server)), tool_(std::move(tool)) {}
  std::string name() const override { return tool_; }
  std::string check(const std::map<std::string, std::string>&) const override { return {}; }
  ToolResult call(const ToolCall& call) const override {
    return server_->call(tool_, call.arguments, {Clock::now() + bounded_wait(call.timeout), call.stop});
  }

 private:
  std::shared_ptr<const McpServer> server_;
  std::string tool_;
};

std::string option(const std::map<std::string, std::string>& options, const std::string& name) {
  const auto found = options.find(name);
  return found == options.end() ? std::string() : found->second;
}

/// An argument that a file gives as a text: where the tool's schema wants no text, its value.
nlohmann::json typed(const std::string& text, bool takes_text) {
  if (takes_text) return text;
  try {
    return *read_json(text);
  } catch (const JsonError&) {
    return text;  // the server says what it expects
  }
}

class McpStep : public Tool {
 public:
  explicit McpStep(std::vector<std::shared_ptr<const McpServer>> servers) : servers_(std::move(servers)) {}
  std::string name() const override { return kMcpTool; }
  std::string check(const std::map<std::string, std::string>& options) const override {
    return check_mcp_step(options);
  }
  ToolResult call(const ToolCall& call) const override;

 private:
  std::vector<std::shared_ptr<const McpServer>> servers_;
};

ToolResult McpStep::call(const ToolCall& call) const {
  const std::string name = option(call.options, kServer);
  const auto found =
      std::find_if(servers_.begin(), servers_.end(), [&](const auto& server) { return server->spec().name == name; });
  if (found == servers_.end()) throw McpError(fmt::format("MCP server '{}' does not run", name));
  const McpServer& server = **found;
  const McpWait wait{Clock::now() + server.spec().timeout, call.stop};
  std::map<std::string, std::string> arguments;
  for (const auto& [key, value] : call.options) {
    if (key.starts_with(kMcpArgument)) arguments[key.substr(std::string_view(kMcpArgument).size())] = value;
  }
  if (const std::string uri = option(call.options, "resource"); !uri.empty()) return {true, server.resource(uri, wait)};
  if (const std::string prompt = option(call.options, "prompt"); !prompt.empty())
    return {true, server.prompt(prompt, arguments, wait)};
  const std::string tool = option(call.options, "tool");
  nlohmann::json object = nlohmann::json::object();
  for (const auto& [key, value] : arguments) object[key] = typed(value, server.takes_text(tool, key));
  return server.call(tool, json_text(object), wait);
}

}  // namespace

std::vector<CallableTool> tools_of(const std::shared_ptr<const McpServer>& server,
                                   const std::vector<std::string>& only) {
  std::vector<CallableTool> out;
  for (const ToolSchema& tool : server->tools()) {
    if (only.empty() || std::find(only.begin(), only.end(), tool.name) != only.end())
      out.push_back({tool, {{kServer, server->spec().name}}, std::make_shared<ServerTool>(server, tool.name)});
  }
  for (const std::string& name : only) {
    const auto known = [&](const CallableTool& tool) { return tool.schema.name == name; };
    if (std::any_of(out.begin(), out.end(), known)) continue;
    std::string names;
    for (const ToolSchema& tool : server->tools()) names += (names.empty() ? "" : ", ") + tool.name;
    throw McpError(fmt::format("MCP server '{}' has no tool '{}'; it has: {}", server->spec().name, name,
                               names.empty() ? "none" : names));
  }
  return out;
}

std::vector<CallableTool> fit_together(const std::vector<ToolSchema>& own, std::vector<CallableTool> more,
                                       const CallLimits& limits, std::vector<std::string>& left_out) {
  std::map<std::string, int> names;
  for (const ToolSchema& tool : own) ++names[tool.name];
  for (const CallableTool& tool : more) ++names[tool.schema.name];
  for (CallableTool& tool : more) {
    if (names[tool.schema.name] > 1)
      tool.schema.name = fmt::format("{}_{}", tool.options.at(kServer), tool.schema.name);
  }
  std::set<std::string> taken;
  for (const ToolSchema& tool : own) taken.insert(tool.name);
  std::erase_if(more, [&](const CallableTool& tool) {
    if (taken.insert(tool.schema.name).second) return false;
    left_out.push_back(fmt::format("MCP server '{}': tool '{}' is left out: another one has this name",
                                   tool.options.at(kServer), tool.schema.name));
    return true;
  });
  if (!limits.enforce || more.empty()) return more;
  std::vector<ToolSchema> all = own;
  for (const CallableTool& tool : more) all.push_back(tool.schema);
  try {
    call_grammar({}, all, limits.max_calls, true);
  } catch (const ConstraintError&) {
    for (CallableTool& tool : more) tool.schema.parameters = kAnyArguments;
  }
  return more;
}

std::string check_mcp_step(const std::map<std::string, std::string>& options) {
  std::string uses;
  for (const auto& [key, value] : options) {
    if (key == kServer || key.starts_with(kMcpArgument)) continue;
    if (std::find(kUses.begin(), kUses.end(), key) == kUses.end())
      return fmt::format("unknown option '{}'; expected server, tool, resource, prompt or arguments", key);
    if (value.empty()) return fmt::format("'{}' is empty", key);
    uses += uses.empty() ? key : " and " + key;
  }
  if (!options.contains(kServer)) return "expected 'server', the name of a server of 'mcp'";
  if (uses.empty()) return "expected 'tool', 'resource' or 'prompt'";
  if (uses.find(' ') != std::string::npos) return fmt::format("{} exclude each other", uses);
  if (uses == "resource" && options.size() > 2) return "a resource has no arguments";
  return {};
}

std::shared_ptr<const Tool> make_mcp_tool(std::vector<std::shared_ptr<const McpServer>> servers) {
  return std::make_shared<McpStep>(std::move(servers));
}

}  // namespace baton
