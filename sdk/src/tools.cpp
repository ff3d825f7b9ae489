// SPDX-License-Identifier: Apache-2.0
// Tools: those of a host, and those of the servers that a workflow names under `mcp`, which are started for a run.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "agents/mcp/server.h"
#include "engine/text/schema/schema.h"
#include "sdk/src/internal.h"

#include <baton/version.h>

namespace baton::inline v1 {
namespace {

using Started = std::vector<McpServers::Started>;

std::vector<ServerRecord> records_of(const Started& started) {
  std::vector<ServerRecord> records;
  for (const McpServers::Started& one : started) {
    ServerRecord& record = records.emplace_back();
    record.name = one.spec.name;
    record.start_ms = one.start_ms;
    record.error = one.server ? one.server->ended() : one.error;
    if (!one.server) continue;
    record.title = one.server->title();
    record.tools = static_cast<int>(one.server->tools().size());
  }
  return records;
}

/// An agent's tools with those of the servers that it names. Throws McpError.
std::shared_ptr<const CallableTools> completed(const CallableTools& tools, const Started& started,
                                               std::vector<std::string>& warnings) {
  std::vector<CallableTool> more;
  for (const ServerTools& wanted : tools.servers()) {
    for (const McpServers::Started& one : started) {
      if (one.spec.name != wanted.server || !one.server) continue;
      for (CallableTool& tool : tools_of(one.server, wanted.only)) more.push_back(std::move(tool));
    }
  }
  std::shared_ptr<const CallableTools> all =
      tools.with(fit_together(tools.schemas(), std::move(more), tools.limits(), warnings));
  return all->schemas().empty() ? nullptr : all;
}

/// The plan of the run, whose turns have the tools of their servers. Throws McpError.
std::shared_ptr<const Plan> completed(const Plan& plan, const Started& started, std::vector<std::string>& warnings) {
  auto out = std::make_shared<Plan>(plan);
  std::map<const CallableTools*, std::shared_ptr<const CallableTools>> known;  // the rounds of an agent share them
  for (PlannedTurn& turn : out->turns) {
    if (!turn.calls || turn.calls->servers().empty()) continue;
    const auto [found, is_new] = known.try_emplace(turn.calls.get());
    if (is_new) found->second = completed(*turn.calls, started, warnings);
    turn.calls = found->second;
  }
  return out;
}

std::shared_ptr<const ToolRegistry> with_steps(const ToolRegistry& tools, const Started& started,
                                               const std::shared_ptr<const ToolRegistry>& owner) {
  auto out = std::make_shared<ToolRegistry>();
  for (const std::string& name : tools.names()) out->add(std::shared_ptr<const Tool>(owner, tools.find(name)));
  std::vector<std::shared_ptr<const McpServer>> servers;
  for (const McpServers::Started& one : started) {
    if (one.server) servers.push_back(one.server);
  }
  out->add(make_mcp_tool(std::move(servers)));
  return out;
}

void warn_of_left_out(const McpServer& server, RunRequest& request) {
  constexpr std::size_t kMaxShown = 16;
  const std::vector<std::string>& all = server.left_out();
  for (std::size_t i = 0; i < std::min(all.size(), kMaxShown); ++i)
    request.warnings.push_back(
        {fmt::format("MCP server '{}': {}", server.spec().name, all[i]), WarningCode::tools_left_out});
  if (all.size() > kMaxShown)
    request.warnings.push_back(
        {fmt::format("MCP server '{}': {} more of this kind", server.spec().name, all.size() - kMaxShown),
         WarningCode::tools_left_out});
}

}  // namespace

std::shared_ptr<McpServers> servers_of(const Workflow& workflow) {
  const std::vector<McpServerSpec>& specs = workflow.impl().plan->spec->servers;
  return specs.empty() ? nullptr : std::make_shared<McpServers>(specs, version());
}

void check_allowed(const WorkflowSpec& spec, bool allowed) {
  if (allowed || spec.servers.empty()) return;
  std::string servers;
  for (const McpServerSpec& server : spec.servers)
    servers += fmt::format("{}{}: {}", servers.empty() ? "" : "; ", server.name, server.shown());
  throw InputError(
      fmt::format("the workflow uses MCP servers, which run outside of the sandbox and see what agents send "
                  "them ({}); they have to be allowed: --allow-servers, or EngineOptions::allow_servers",
                  servers));
}

void start_servers(const std::shared_ptr<McpServers>& servers, RunRequest& request, const std::stop_token& stop) {
  if (!servers) return;
  const Started started = servers->start(stop);
  request.servers = [servers, started] { return records_of(started); };
  for (const McpServers::Started& one : started) {
    if (!one.server && one.spec.required) {
      request.unready = one.error;
      return;
    }
    if (!one.server)
      request.warnings.push_back({one.error + "; the run goes on without it", WarningCode::server_missing});
    if (one.server && one.start_ms > 0) warn_of_left_out(*one.server, request);
  }
  try {
    std::vector<std::string> left_out;
    request.plan = completed(*request.plan, started, left_out);
    for (std::string& what : left_out) request.warnings.push_back({std::move(what), WarningCode::tools_left_out});
    request.tools = with_steps(*request.tools, started, request.tools);
  } catch (const McpError& error) {
    request.unready = error.what();
  }
}

// The host's functions as tools of the agents layer.

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
  if (definition.parameters.empty() && !is_name(name))
    throw std::invalid_argument(fmt::format("invalid tool name '{}': expected [a-z][a-z0-9_]*", name));
  if (!definition.parameters.empty() && !is_tool_name(name))
    throw std::invalid_argument(fmt::format("invalid tool name '{}': expected 1 to 64 of [A-Za-z0-9_.-]", name));
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
  auto registry = std::make_shared<ToolRegistry>();
  for (const auto& [name, entry] : tools.entries()) registry->add(std::make_shared<HostTool>(name, entry));
  const auto builtins = std::make_shared<const ToolRegistry>(ToolRegistry::with_builtins());
  for (const std::string& name : builtins->names()) {
    if (registry->find(name) == nullptr) registry->add(std::shared_ptr<const Tool>(builtins, builtins->find(name)));
  }
  return registry;
}

}  // namespace baton::inline v1
