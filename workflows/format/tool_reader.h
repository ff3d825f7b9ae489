// SPDX-License-Identifier: Apache-2.0
// The tools of a checked tree: those that it declares, and those that an agent runs or lets its model call.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agents/tool.h"
#include "workflows/format/fields.h"
#include "workflows/format/output_grammar.h"
#include "workflows/format/spec.h"

namespace baton {

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
  void check_calls(const std::vector<CallableTool>& tools, const CallLimits& limits, const Fields& fields,
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

}  // namespace baton
