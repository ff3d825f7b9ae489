// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agents/mcp/server.h"
#include "agents/tools/python_tool.h"
#include "engine/text/schema/schema.h"
#include "workflows/format/format_table.h"
#include "workflows/format/placeholder.h"
#include "workflows/format/readers.h"
#include "workflows/format/yaml_tree.h"

namespace baton {
namespace {

constexpr Milliseconds kNoTimeLimit = std::chrono::hours(24);
constexpr std::string_view kNoParameters = R"({"type": "object", "properties": {}, "additionalProperties": false})";

/// Stands for a tool of a host that is not here.
class AbsentTool : public Tool {
 public:
  AbsentTool(std::string name, ToolDefinition definition)
      : name_(std::move(name)), definition_(std::move(definition)) {}
  std::string name() const override { return name_; }
  std::string check(const std::map<std::string, std::string>&) const override { return {}; }
  ToolResult call(const ToolCall&) const override { return {false, "error: the host has no tool '" + name_ + "'"}; }
  ToolDefinition definition() const override { return definition_; }

 private:
  std::string name_;
  ToolDefinition definition_;
};

/// The name in `{call: NAME}`; null for any other tool.
const YamlNode* called_name(const YamlNode& node) {
  const YamlEntry* call = node.kind == YamlNode::Kind::map ? node.entry("call") : nullptr;
  return call != nullptr && call->value.is_scalar() ? &call->value : nullptr;
}

/// Values of variables stand in it.
bool holds_values(const YamlNode& node) {
  return node.has_values || std::any_of(node.items.begin(), node.items.end(), holds_values) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [](const YamlEntry& entry) { return holds_values(entry.value); });
}

/// The closest of the names, or else all of them.
std::string near_or_all(const std::string& word, const std::vector<std::string>& names,
                        const Diagnostics& diagnostics) {
  const std::string near = diagnostics.suggestion(word, names);
  if (!near.empty()) return near;
  return names.empty() ? "there is none" : fmt::format("the tools are: {}", fmt::join(names, ", "));
}

}  // namespace

void ToolReader::declare(const YamlEntry& entry) {
  const Fields fields(entry.value);
  const std::string owner = fmt::format("tool '{}'", entry.key.text);
  const Tool* host = registry_.find(entry.key.text);
  ToolDefinition definition = host == nullptr ? ToolDefinition() : host->definition();
  bool is_data = false;  // a part of what the model is told
  if (const YamlNode* description = fields.get("description")) {
    definition.description = description->text;
    is_data = description->has_values;
  }
  if (const YamlNode* schema = fields.get("parameters")) {
    is_data = is_data || holds_values(*schema);
    definition.parameters = to_json(*schema);
    check_schema(*schema, definition.parameters, owner);
  }
  CallableTool tool{{entry.key.text, definition.description, definition.parameters}, {}, nullptr};
  if (const YamlNode* python = fields.get("python")) {
    if (host != nullptr)
      diagnostics_.error(fields.where("python"), "E0409", fmt::format("{}: the host has a tool of this name", owner));
    if (definition.parameters.empty()) definition.parameters = tool.schema.parameters = kNoParameters;
    tool.own = make_python_function(entry.key.text, definition, python->text);
  } else if (host == nullptr && !fields.has("python")) {
    const bool described = fields.has("description") || fields.has("parameters");
    if (described && may_be_absent_) {
      tool.own = std::make_shared<AbsentTool>(entry.key.text, definition);
      absent_.push_back(entry.key.text);
    } else {
      const std::string near = diagnostics_.suggestion(entry.key.text, registry_.names());
      diagnostics_.error(entry.key.where(), "E0204",
                         fmt::format("{}: the host has no tool of this name, and the file no 'python' for it", owner),
                         near.empty() && described ? "the program that runs the workflow has to provide it" : near);
    }
  }
  if (is_data) tool.schema.shown = tool.schema.parameters;
  declared_.insert_or_assign(entry.key.text, std::move(tool));
}

void ToolReader::check_schema(const YamlNode& schema, const std::string& json, const std::string& owner) const {
  report_schema_mistakes(schema, parameters_mistakes(json), owner + ": parameters", diagnostics_);
}

std::vector<std::string> ToolReader::names() const {
  std::vector<std::string> names = registry_.names();
  for (const auto& [name, tool] : declared_) names.push_back(name);
  return names;
}

void ToolReader::read(const Fields& fields, const std::string& owner, AgentSpec& agent) const {
  std::vector<CallableTool> calls;
  std::vector<ServerTools> servers;
  bool offers = false;  // also what has an error of its own
  if (const YamlNode* list = fields.get("tools")) {
    for (const YamlNode& item : list->items) {
      if (item.broken) continue;
      if (const YamlEntry* server = item.kind == YamlNode::Kind::map ? item.entry(kMcpTool) : nullptr) {
        if (server->value.broken) continue;
        offers = offers || server->value.kind != YamlNode::Kind::map;
        if (server->value.kind == YamlNode::Kind::map) {
          if (std::optional<ToolSpec> one = server_step(server->value, owner)) agent.tools.push_back(std::move(*one));
        } else if (std::optional<ServerTools> one = server_tools(item, owner)) {
          const auto same = [&](const ServerTools& other) { return other.server == one->server; };
          if (std::any_of(servers.begin(), servers.end(), same))
            diagnostics_.error(server->value.where(), "E0409",
                               fmt::format("{}: server '{}' stands there twice", owner, one->server));
          servers.push_back(std::move(*one));
        }
      } else if (const YamlNode* name = called_name(item)) {
        offers = true;
        if (std::optional<CallableTool> one = callable(item, *name, owner)) calls.push_back(std::move(*one));
      } else if (std::optional<ToolSpec> one = tool(item, owner)) {
        agent.tools.push_back(std::move(*one));
      }
    }
  }
  const CallLimits limit = limits(fields);
  const YamlNode* node = fields.get("calls");
  const std::optional<std::string> on_error = node == nullptr ? std::nullopt : Fields(*node).text("on_error");
  agent.tells_errors = on_error == "tell";
  if (calls.empty() && servers.empty()) {
    const bool of_tools = on_error && node->entries.size() == 1 && fields.has("tools");
    if (node != nullptr && !offers && !of_tools)
      diagnostics_.error(fields.where("calls"), "E0409",
                         fmt::format("{}: 'calls' has no effect without a tool '{{call: NAME}}' or '{{mcp: SERVER}}'{}",
                                     owner, agent.tools.empty() ? "" : ", but for its key 'on_error'"));
    return;
  }
  for (const std::string& name : limit.approve_tools) {
    const bool known =
        std::any_of(calls.begin(), calls.end(), [&](const CallableTool& tool) { return tool.schema.name == name; });
    if (!known && servers.empty())
      diagnostics_.error(fields.where("calls"), "E0204",
                         fmt::format("{}: calls.approve: the model may call no tool '{}'", owner, name));
  }
  agent.calls_unenforced = check_calls({calls, !servers.empty()}, limit, fields, owner, agent);
  std::shared_ptr<const Grammar> answer;
  if (agent.output.enforce && agent.output.constrains()) {
    try {
      answer = grammars_.get(agent.output);
    } catch (const ConstraintError&) {  // reported with the output
    }
  }
  agent.calls = std::make_shared<const CallableTools>(std::move(calls), limit, std::move(answer), std::move(servers));
}

CallLimits ToolReader::limits(const Fields& fields) const {
  CallLimits out;
  const YamlNode* node = fields.get("calls");
  if (node == nullptr) return out;
  const Fields calls(*node);
  out.max_calls = static_cast<int>(calls.integer("max").value_or(out.max_calls));
  out.timeout = calls.duration("timeout").value_or(out.timeout);
  if (out.timeout.count() == 0) out.timeout = kNoTimeLimit;
  if (calls.has("max_bytes")) out.max_bytes = static_cast<std::size_t>(calls.size("max_bytes"));
  out.enforce = calls.boolean("enforce").value_or(true);
  out.repeat = calls.boolean("repeat").value_or(false);
  out.direct = calls.boolean("direct").value_or(false);
  out.fail = calls.text("on_error") == "fail";
  if (const YamlNode* approve = calls.get("approve")) {
    out.approve = approve->is_scalar() && approve->text == "always";
    if (!approve->is_scalar()) {
      if (const YamlNode* tools = Fields(*approve).get("tools")) {
        for (const YamlNode& tool : tools->items) out.approve_tools.push_back(tool.text);
      }
    }
  }
  const std::string before = calls.text("text").value_or("allowed");
  if (before == "forbidden") out.text = TextBefore::forbidden;
  if (before == "required") out.text = TextBefore::required;
  const std::string choice = calls.text("tool_choice").value_or("auto");
  if (choice.empty() || choice == "auto") return out;
  out.choice = choice == "none" ? ToolChoice::none : ToolChoice::required;
  if (choice != "none" && choice != "required") out.tool = choice;
  return out;
}

std::vector<std::string> ToolReader::check_calls(const OfferedTools& offered, const CallLimits& limits,
                                                 const Fields& fields, const std::string& owner,
                                                 const AgentSpec& agent) const {
  const auto& [tools, has_servers] = offered;
  const auto wrong = [&](const SourceLocation& where, const char* code, const std::string& what) {
    diagnostics_.error(where, code, fmt::format("{}: {}", owner, what));
    return std::vector<std::string>();
  };
  const SourceLocation where = fields.where("tools");
  if (!fields.has("prompt")) return wrong(where, "E0409", "without 'prompt' there is no model that could call a tool");
  if (agent.output.choose) return wrong(where, "E0409", "with 'choose' nothing is written that could call a tool");
  if (!limits.enforce && agent.output.constrains() && agent.output.enforce)
    return wrong(fields.where("calls"), "E0409", "'output' is enforced, so that calls have to be, too");
  const bool bound = limits.choice == ToolChoice::required || limits.text != TextBefore::allowed;
  if (!limits.enforce && bound)
    return wrong(fields.where("calls"), "E0409", "'tool_choice' and 'text' have no effect with 'enforce: false'");
  const auto named = [&](const CallableTool& tool) { return tool.schema.name == limits.tool; };
  if (!limits.tool.empty() && !has_servers && std::none_of(tools.begin(), tools.end(), named))
    return wrong(fields.where("calls"), "E0204",
                 fmt::format("tool_choice: expected auto, required, none or a tool that the agent may call, found '{}'",
                             limits.tool));
  std::vector<ToolSchema> schemas;
  for (const CallableTool& tool : tools) {
    const auto same = [&](const ToolSchema& other) { return other.name == tool.schema.name; };
    if (std::any_of(schemas.begin(), schemas.end(), same))
      return wrong(where, "E0409", fmt::format("tool '{}' stands there twice", tool.schema.name));
    schemas.push_back(tool.schema);
  }
  if (schemas.empty() || !limits.enforce || diagnostics_.full()) return {};
  try {
    return call_grammar({}, schemas, {.max_calls = limits.max_calls})->unenforced();
  } catch (const ConstraintError& error) {
    diagnostics_.error(where, "E0414", fmt::format("{}: {}", owner, error.what()),
                       "'calls: {enforce: false}' checks arguments when a call is complete");
    return {};
  }
}

std::optional<CallableTool> ToolReader::callable(const YamlNode& node, const YamlNode& name,
                                                 const std::string& owner) const {
  CallableTool out;
  const Tool* tool = registry_.find(name.text);
  if (const auto declared = declared_.find(name.text); declared != declared_.end()) {
    out = declared->second;
    if (out.own) tool = out.own.get();
  } else if (tool != nullptr) {
    const ToolDefinition definition = tool->definition();
    out.schema = {name.text, definition.description, definition.parameters, definition.parameters};
  }
  if (tool == nullptr) {
    if (!declared_.contains(name.text))  // otherwise it is reported there
      diagnostics_.error(name.where(), "E0204", fmt::format("{}: unknown tool '{}'", owner, name.text),
                         near_or_all(name.text, names(), diagnostics_));
    return std::nullopt;
  }
  if (out.schema.parameters.empty()) {
    diagnostics_.error(
        name.where(), "E0402",
        fmt::format("{}: a model cannot call tool '{}', whose 'parameters' are not known", owner, name.text),
        "describe it under 'tools' of the file");
    return std::nullopt;
  }
  for (const YamlEntry& option : node.entries) {
    if (option.key.text == "call" || option.value.broken || is_extension_key(option.key.text)) continue;
    if (!option.value.is_scalar() || option.value.text.find("{{") != std::string::npos)
      diagnostics_.error(
          option.value.where(), "E0404",
          fmt::format("{}: {}: an option of a called tool is a value without placeholders", owner, option.key.text));
    out.options[option.key.text] = option.value.text;
  }
  const std::string wrong = tool->check(out.options);
  if (!wrong.empty())
    diagnostics_.error(name.where(), "E0410", fmt::format("{}: tool '{}': {}", owner, name.text, wrong));
  return out;
}

/// An option with placeholders is a template.
void ToolReader::read_option(ToolSpec& tool, const std::string& name, const YamlNode& value,
                             const std::string& owner) const {
  const std::string& text = value.text;
  tool.options[name] = text;
  if (text.find("{{") == std::string::npos) return;
  const SourceLocation where = value.where();
  std::vector<TemplateError> errors;
  PromptItem item;
  item.pieces = parse_template(text, errors);
  item.where = where;
  for (const TemplateError& error : errors)
    diagnostics_.error(where, "E0205", fmt::format("{}: {}: {}", owner, name, error.message));
  if (value.has_values || text.find("${secret:") != std::string::npos)
    diagnostics_.error(
        where, "E0404",
        fmt::format("{}: {}: placeholders stand neither with ${{env:...}} nor with ${{secret:...}}", owner, name));
  tool.filled[name] = std::move(item);
}

std::optional<ToolSpec> ToolReader::tool(const YamlNode& node, const std::string& owner) const {
  const bool is_map = node.kind == YamlNode::Kind::map;
  if (is_map && node.entries.size() != 1) {
    diagnostics_.error(node.where(), "E0403",
                       fmt::format("{}: invalid tool: expected a name, or a map of one name to its options", owner));
    return std::nullopt;
  }
  const YamlNode& name = is_map ? node.entries[0].key : node;
  ToolSpec out;
  out.tool = name.text;
  out.where = name.where();
  const Tool* tool = registry_.find(out.tool);
  if (std::find(absent_.begin(), absent_.end(), out.tool) != absent_.end()) tool = declared_.at(out.tool).own.get();
  if (tool == nullptr) {
    diagnostics_.error(out.where, "E0204", fmt::format("{}: unknown tool '{}'", owner, out.tool),
                       near_or_all(out.tool, registry_.names(), diagnostics_));
    return out;
  }
  if (is_map) {
    const YamlNode& options = node.entries[0].value;
    if (options.broken) return out;
    if (options.kind != YamlNode::Kind::map) {
      diagnostics_.error(
          options.where(), "E0403",
          fmt::format("{}: tool '{}': expected a map of options, found {}", owner, out.tool, described(options.kind)),
          fmt::format("write {{{}: {{option: value}}}}", out.tool));
      return out;
    }
    for (const YamlEntry& option : options.entries) {
      if (option.value.broken || is_extension_key(option.key.text)) continue;
      if (!option.value.is_scalar()) {
        diagnostics_.error(option.value.where(), "E0403",
                           fmt::format("{}: {}: an option of tool '{}' is a value", owner, option.key.text, out.tool));
      } else if (option.key.text == "from") {
        out.from = option.value.text;
        out.from_where = option.value.where();
      } else {
        read_option(out, option.key.text, option.value, owner);
      }
    }
  }
  const std::string wrong = tool->check(out.options);
  if (!wrong.empty()) diagnostics_.error(out.where, "E0410", fmt::format("{}: tool '{}': {}", owner, out.tool, wrong));
  return out;
}

namespace {

std::map<std::string, std::string> texts_of(const YamlNode* map) {
  std::map<std::string, std::string> out;
  for (const YamlEntry& entry : map == nullptr ? std::vector<YamlEntry>() : map->entries) {
    if (!entry.value.broken && !is_extension_key(entry.key.text)) out[entry.key.text] = entry.value.text;
  }
  return out;
}

/// True if the text holds a character that would end a header's line, or a variable's name or value.
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
