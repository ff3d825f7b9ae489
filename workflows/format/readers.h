// SPDX-License-Identifier: Apache-2.0
// A checked tree becomes a WorkflowSpec, section by section. What only makes sense together (names, keys that exclude
// each other) is checked here.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agents/tools/tool.h"
#include "workflows/format/output.h"
#include "workflows/format/spec.h"
#include "workflows/format/yaml_tree.h"

namespace baton {

/// `prompt` has passed the format check. Messages name the agent.
std::vector<MessageSpec> read_prompt(const YamlNode& prompt, const std::string& agent, Diagnostics& diagnostics);

/// Template pieces of a text with the place of each; ${env:...} in fixed text is resolved.
PromptItem read_template(const YamlNode& text, const std::string& owner, Diagnostics& diagnostics);

/// The key `template` of a model or an agent: variables of a chat template by name, each a value in JSON.
std::vector<std::pair<std::string, std::string>> read_template_variables(const Fields& fields, const std::string& owner,
                                                                         Diagnostics& diagnostics);

/// Errors go to the diagnostics; without errors what was read is complete.
class ToolReader {
 public:
  /// `absent`: whether tools that the file describes may be missing in the registry (ReadOptions::absent_tools).
  ToolReader(const ToolRegistry& registry, bool absent, OutputGrammars& grammars, Diagnostics& diagnostics)
      : registry_(registry), may_be_absent_(absent), grammars_(grammars), diagnostics_(diagnostics) {}

  /// One of the file's `tools`.
  void declare(const YamlEntry& entry);

  /// Declared, and missing in the registry.
  const std::vector<std::string>& absent() const { return absent_; }

  /// One of the file's `mcp`.
  void declare_server(const YamlEntry& entry);
  const std::vector<McpServerSpec>& servers() const { return servers_; }

  /// The keys `tools` and `calls` of an agent whose `output` has been read.
  void read(const Fields& fields, const std::string& owner, AgentSpec& agent) const;

 private:
  std::optional<ToolSpec> tool(const YamlNode& node, const std::string& owner) const;
  void read_option(ToolSpec& tool, const std::string& name, const YamlNode& value, const std::string& owner) const;
  std::optional<CallableTool> callable(const YamlNode& node, const YamlNode& name, const std::string& owner) const;
  CallLimits limits(const Fields& fields) const;
  /// Returns what calls are not held to while they are decoded.
  struct OfferedTools {
    const std::vector<CallableTool>& tools;
    bool servers;  // there are those of servers, too
  };
  std::vector<std::string> check_calls(const OfferedTools& offered, const CallLimits& limits, const Fields& fields,
                                       const std::string& owner, const AgentSpec& agent) const;
  void check_schema(const YamlNode& schema, const std::string& json, const std::string& owner) const;
  std::vector<std::string> names() const;

  // tool_reader_servers.cpp
  std::optional<ServerTools> server_tools(const YamlNode& item, const std::string& owner) const;
  std::optional<ToolSpec> server_step(const YamlNode& step, const std::string& owner) const;
  void check_server(const YamlNode& name, const std::string& owner) const;

  const ToolRegistry& registry_;
  bool may_be_absent_;
  OutputGrammars& grammars_;
  Diagnostics& diagnostics_;
  std::map<std::string, CallableTool> declared_;
  std::vector<std::string> absent_;
  std::vector<McpServerSpec> servers_;
};

/// Reads agents. Errors go to the diagnostics; without errors the agents are complete.
class AgentReader {
 public:
  AgentReader(const ToolReader& tools, OutputGrammars& grammars, Diagnostics& diagnostics)
      : tools_(tools), grammars_(grammars), diagnostics_(diagnostics) {}

  AgentSpec agent(const YamlEntry& entry);
  GenerationSpec generation(const Fields& fields);

  struct ErrorHandling {
    std::optional<OnError> on_error;
    std::optional<std::string> fallback;
    std::optional<RetrySpec> retry;
  };
  ErrorHandling error_handling(const Fields& fields, const std::string& owner);

  /// Empty, with an error, when the pattern does not compile.
  std::string pattern(const Fields& fields, const char* key, const std::string& owner);

 private:
  void read_overflow(const YamlNode& node, const std::string& owner, AgentSpec& agent);
  ToolSpec ask(const YamlNode& question, const Fields& fields, const std::string& owner);
  void check_tools_only(const Fields& fields, const std::string& owner);
  std::vector<TemplatePiece> feedback(const YamlNode& text, const std::string& owner);
  OutputSpec output(const YamlNode& node, const std::string& owner);
  void check_choices(const OutputSpec& output, const Fields& fields, const std::string& owner);
  void check_output(const OutputSpec& output, std::string_view kind, const Fields& fields, const std::string& owner);

  const ToolReader& tools_;
  OutputGrammars& grammars_;
  Diagnostics& diagnostics_;
};

/// Fills spec.topology; the agents of the spec have been read. `file` is the whole file.
void read_topology(const Fields& file, WorkflowSpec& spec, AgentReader& reader, Diagnostics& diagnostics);

/// Reads `relay` of a file whose types have been checked, if it has the section. Reports keys that contradict another
/// setting, or have no effect with it.
void read_relay(const Fields& file, RelaySpec& relay, Diagnostics& diagnostics);

/// `root` has passed the format check; broken nodes are passed over. The spec is complete if `diagnostics` is empty,
/// and `grammars` has those of its outputs then.
WorkflowSpec read_spec(const YamlNode& root, const ToolRegistry& tools, bool absent_tools, OutputGrammars& grammars,
                       Diagnostics& diagnostics);

/// Checks what every placeholder of the prompts, tools and conditions names.
void check_placeholders(const WorkflowSpec& spec, Diagnostics& diagnostics);

}  // namespace baton
