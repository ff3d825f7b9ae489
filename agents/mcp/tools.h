// SPDX-License-Identifier: Apache-2.0
// What a workflow does with servers: tools that its models call, and steps that run before a prompt is built.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "agents/mcp/server.h"
#include "agents/tools/tool.h"

namespace baton {

/// The tools of a server that a model may call: those of `only`, or all if it is empty. Throws McpError for a name
/// in `only` that the server does not have.
std::vector<CallableTool> tools_of(const std::shared_ptr<const McpServer>& server,
                                   const std::vector<std::string>& only);

/// `more` as they are shown together with `own`: if a name is taken, a tool of a server has the server's in front of
/// it
/// ("docs_search"), and is left out if that name is taken, too, with a sentence in `left_out`; if all together
/// cannot be enforced, the arguments of `more` are any objects.
std::vector<CallableTool> fit_together(const std::vector<ToolSchema>& own, std::vector<CallableTool> more,
                                       const CallLimits& limits, std::vector<std::string>& left_out);

/// The tool `mcp` of a run: its options name the server, and either `tool`, `resource` or `prompt`; those that begin
/// with "arguments." are the arguments.
inline constexpr std::string_view kAnyArguments = R"({"type": "object"})";
inline constexpr const char* kMcpTool = "mcp";
inline constexpr const char* kMcpArgument = "arguments.";

/// The first error in the options of a step, or an empty text.
std::string check_mcp_step(const std::map<std::string, std::string>& options);

std::shared_ptr<const Tool> make_mcp_tool(std::vector<std::shared_ptr<const McpServer>> servers);

}  // namespace baton
