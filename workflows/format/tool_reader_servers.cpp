// SPDX-License-Identifier: Apache-2.0
// Servers of a checked tree: those that `mcp` declares, and what agents do with them.
#include <fmt/format.h>

#include <algorithm>

#include "agents/mcp/tools.h"
#include "workflows/format/format_table.h"
#include "workflows/format/tool_reader.h"

namespace baton {
namespace {

std::map<std::string, std::string> texts_of(const YamlNode* map) {
  std::map<std::string, std::string> out;
  for (const YamlEntry& entry : map == nullptr ? std::vector<YamlEntry>() : map->entries) {
    if (!entry.value.broken && !is_extension_key(entry.key.text)) out[entry.key.text] = entry.value.text;
  }
  return out;
}

/// What would end a header's line, or a variable's name or value.
bool has_end(const std::string& text, std::string_view ends) { return text.find_first_of(ends) != std::string::npos; }

}  // namespace

void ToolReader::declare_server(const YamlEntry& entry) {
  using namespace std::string_view_literals;
  const Fields fields(entry.value);
  McpServerSpec server;
  server.name = entry.key.text;
  const SourceLocation where = entry.key.where();
  const auto wrong = [&](const SourceLocation& place, const char* code, const std::string& what) {
    diagnostics_.error(place, code, fmt::format("server '{}': {}", server.name, what));
  };
  if (const YamlNode* command = fields.get("command")) {
    for (const YamlNode& word : command->items) server.command.push_back(word.text);
    if (server.command.empty() || server.command.front().empty())
      wrong(command->where(), "E0404", "expected a program and its arguments");
  }
  server.folder = std::filesystem::absolute(where.file).parent_path();
  server.environment = texts_of(fields.get("env"));
  server.url = fields.text("url").value_or("");
  server.headers = texts_of(fields.get("headers"));
  server.timeout = fields.duration("timeout").value_or(server.timeout);
  if (server.timeout.count() == 0) server.timeout = kMaxWait;
  server.required = fields.boolean("required").value_or(true);

  const bool has_command = fields.has("command"), has_url = fields.has("url");
  if (has_command && has_url) wrong(fields.where("url"), "E0409", "'command' and 'url' exclude each other");
  if (has_url && fields.has("env")) wrong(fields.where("env"), "E0409", "'env' has no effect with 'url'");
  if (has_command && fields.has("headers"))
    wrong(fields.where("headers"), "E0409", "'headers' has no effect with 'command'");
  if (fields.get("url") != nullptr && !server.url.starts_with("http://") && !server.url.starts_with("https://"))
    wrong(fields.get("url")->where(), "E0404", "expected an address that begins with http:// or https://");
  for (const auto& [name, value] : server.headers) {
    if (name.empty() || has_end(name, "\r\n:\0 "sv) || has_end(value, "\r\n\0"sv))
      wrong(fields.where("headers"), "E0404", fmt::format("'{}' is no header", name));
  }
  for (const auto& [name, value] : server.environment) {
    if (name.empty() || has_end(name, "=\0"sv) || has_end(value, "\0"sv))
      wrong(fields.where("env"), "E0404", fmt::format("'{}' is no variable", name));
  }
  servers_.push_back(std::move(server));
}

void ToolReader::check_server(const YamlNode& name, const std::string& owner) const {
  std::vector<std::string> known;
  for (const McpServerSpec& server : servers_) known.push_back(server.name);
  if (std::find(known.begin(), known.end(), name.text) != known.end()) return;
  diagnostics_.error(name.where(), "E0204", fmt::format("{}: no server '{}' in 'mcp'", owner, name.text),
                     diagnostics_.suggestion(name.text, known));
}

/// `{mcp: NAME, only: [...]}`.
std::optional<ServerTools> ToolReader::server_tools(const YamlNode& item, const std::string& owner) const {
  const YamlNode& name = item.entry(kMcpTool)->value;
  if (!name.is_scalar()) {
    diagnostics_.error(name.where(), "E0403", fmt::format("{}: mcp: expected the name of a server, or a map", owner));
    return std::nullopt;
  }
  check_server(name, owner);
  ServerTools out{name.text, {}};
  for (const YamlEntry& option : item.entries) {
    if (option.key.text == kMcpTool || option.value.broken || is_extension_key(option.key.text)) continue;
    if (option.key.text != "only") {
      diagnostics_.error(option.key.where(), "E0401",
                         fmt::format("{}: mcp: unknown key '{}'; expected 'only'", owner, option.key.text));
    } else if (option.value.items.empty()) {
      diagnostics_.error(option.value.where(), "E0403", fmt::format("{}: mcp: only: expected a list of tools", owner));
    }
    for (const YamlNode& tool : option.value.items) out.only.push_back(tool.text);
  }
  return out;
}

/// `{mcp: {server: NAME, tool | resource | prompt: ..., arguments: {...}}}`.
std::optional<ToolSpec> ToolReader::server_step(const YamlNode& step, const std::string& owner) const {
  ToolSpec out;
  out.tool = kMcpTool;
  out.where = step.where();
  bool well_formed = true;
  for (const YamlEntry& option : step.entries) {
    if (option.value.broken || is_extension_key(option.key.text)) continue;
    const bool is_arguments = option.key.text == "arguments";
    if (is_arguments != (option.value.kind == YamlNode::Kind::map)) {
      well_formed = false;
      diagnostics_.error(option.value.where(), "E0403",
                         fmt::format("{}: mcp: {}: expected {}", owner, option.key.text,
                                     is_arguments ? "a map of arguments" : "a value"));
    } else if (!is_arguments) {
      read_option(out, option.key.text, option.value, owner);
    } else {
      for (const YamlEntry& argument : option.value.entries) {
        if (!argument.value.broken) read_option(out, kMcpArgument + argument.key.text, argument.value, owner);
      }
    }
  }
  for (const auto& [name, value] : out.options) {
    if (value.find("${secret:") != std::string::npos)
      diagnostics_.error(out.where, "E0504",
                         fmt::format("{}: mcp: {}: tools of the host alone know secrets", owner, name),
                         "the server's 'env' and 'headers' take ${env:NAME}");
  }
  if (const std::string wrong = check_mcp_step(out.options); well_formed && !wrong.empty())
    diagnostics_.error(out.where, "E0410", fmt::format("{}: mcp: {}", owner, wrong));
  if (const YamlEntry* server = step.entry("server"); server != nullptr && !server->value.broken)
    check_server(server->value, owner);
  return out;
}

}  // namespace baton
