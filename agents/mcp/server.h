// SPDX-License-Identifier: Apache-2.0
// McpServer: a running server, its tools, resources and prompts. The protocol is MCP 2025-11-25 and its three
// predecessors, which begin with a handshake (docs/decisions/tools.md).
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "agents/mcp/connection.h"
#include "agents/tools/tool.h"
#include "engine/text/constrain/call_grammar.h"

#include <baton/tool_call.h>

namespace baton {

/// Its functions may be called concurrently. Requests throw McpError, and Interrupted when a stop was requested.
class McpServer {
 public:
  /// Starts the program or finds the address, agrees on the protocol and lists the tools, within the time of `spec`.
  /// `version`: of this library.
  McpServer(McpServerSpec spec, const std::string& version, const std::stop_token& stop);

  const McpServerSpec& spec() const { return spec_; }
  const std::string& title() const { return title_; }  // what it says of itself, "docs 1.2"
  const std::vector<ToolSchema>& tools() const { return tools_; }
  /// Tools that are left out, with the reason.
  const std::vector<std::string>& left_out() const { return left_out_; }
  std::string ended() const;  // why it answers no more; empty: it may

  /// `arguments`: an object of JSON. If the server reports an error, the result is not ok.
  ToolResult call(const std::string& tool, const std::string& arguments, const McpWait& wait) const;
  /// The texts of a resource.
  std::string resource(const std::string& uri, const McpWait& wait) const;
  /// The texts of the messages of a prompt, one below the other.
  std::string prompt(const std::string& name, const std::map<std::string, std::string>& arguments,
                     const McpWait& wait) const;
  /// Whether a tool's argument may be a text, by the tool's schema; true if it says nothing of it.
  bool takes_text(const std::string& tool, const std::string& argument) const;

 private:
  void shake_hands(const std::string& version, const McpWait& wait);
  void list_tools(const McpWait& wait);
  std::string ask(const std::string& method, const std::string& params, const McpWait& wait) const;

  McpServerSpec spec_;
  std::string title_;
  bool has_tools_ = false;
  std::vector<ToolSchema> tools_;
  std::vector<std::string> left_out_;
  std::unique_ptr<McpConnection> connection_;
};

// McpServers: the servers of a run, or of the runs of a session.

/// Its functions may be called concurrently. Destroying the object ends the servers that nobody uses any more.
class McpServers {
 public:
  McpServers(std::vector<McpServerSpec> specs, std::string version)
      : specs_(std::move(specs)), version_(std::move(version)) {}
  ~McpServers();
  McpServers(const McpServers&) = delete;
  McpServers& operator=(const McpServers&) = delete;

  /// A server, where it runs, and how it got there.
  struct Started {
    McpServerSpec spec;
    std::shared_ptr<const McpServer> server;  // null: it could not be started, or was not required
    std::string error;                        // why
    double start_ms = 0.0;                    // 0: it ran already
  };

  /// Starts, concurrently, those that do not run. In the order of the specs. Throws Interrupted, and std::system_error
  /// if no thread can be started.
  std::vector<Started> start(const std::stop_token& stop);

 private:
  const std::vector<McpServerSpec> specs_;
  const std::string version_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const McpServer>> running_;  // one of each spec; null: none
};

// A workflow uses servers in two ways: its models call their tools, and steps run before a prompt is built.

/// The tools of a server that a model may call: those of `only`, or all if it is empty. Throws McpError for a name
/// in `only` that the server does not have.
std::vector<CallableTool> tools_of(const std::shared_ptr<const McpServer>& server,
                                   const std::vector<std::string>& only);

/// `more` as they are shown together with `own`: if a name is taken, a tool of a server has the server's in front of
/// it
/// ("docs_search"), and is left out if that name is taken, too, with a sentence in `left_out`; if all together are too
/// large for a grammar, the largest of `more` are not enforced, with a sentence of each.
std::vector<CallableTool> fit_together(const std::vector<ToolSchema>& own, std::vector<CallableTool> more,
                                       const CallLimits& limits, std::vector<std::string>& left_out);

/// The tool `mcp` of a run: its options name the server, and either `tool`, `resource` or `prompt`; those that begin
/// with "arguments." are the arguments.
inline constexpr const char* kMcpTool = "mcp";
inline constexpr const char* kMcpArgument = "arguments.";

/// The first error in the options of a step, or an empty text.
std::string check_mcp_step(const std::map<std::string, std::string>& options);

std::shared_ptr<const Tool> make_mcp_tool(std::vector<std::shared_ptr<const McpServer>> servers);

}  // namespace baton
