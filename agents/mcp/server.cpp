// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/server.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "agents/mcp/connection.h"
#include "engine/base/errors.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/call_grammar.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kVersions = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
constexpr int kMaxPages = static_cast<int>(kMaxMcpTools);
constexpr int kMaxSchemas = 256;  // maximum number of schemas examined for one argument

/// Returns a member of an object if it is a text, else an empty text.
std::string text_in(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                                               : std::string();
}

/// Returns a piece of content as text; content of other types is only named. Throws McpError for a text without text.
std::string text_of(const Json& content) {
  const std::string type = text_in(content, "type");
  if (type == "text") {
    if (!content.contains("text") || !content["text"].is_string())
      throw McpError("the server's result has content of type 'text' without a text");
    return text_in(content, "text");
  }
  if (type == "resource" && content.contains("resource")) {
    const Json& resource = content["resource"];
    if (resource.is_object() && resource.contains("text") && resource["text"].is_string())
      return text_in(resource, "text");
    return fmt::format("[{}, which is not text]", text_in(resource, "uri"));
  }
  if (type == "resource_link") return fmt::format("[{}: {}]", text_in(content, "name"), text_in(content, "uri"));
  return fmt::format("[{} ({}), which is not text]", type.empty() ? "something" : type, text_in(content, "mimeType"));
}

void add_line(std::string& all, const std::string& text) { all += (all.empty() ? "" : "\n") + text; }

/// A message with a result, for as long as the result is used.
class Answer {
 public:
  explicit Answer(const std::string& message) : document_(read_json(message)) {}
  const Json& result() const { return (*document_)["result"]; }

 private:
  JsonDocument document_;
};

/// True if a text may fit the schema, judged by types. `schemas`: how many more schemas may be examined.
bool may_be_text(const Json& schema, const Json& root, int& schemas) {
  if (!schema.is_object() || --schemas < 0) return true;
  const auto is_text = [](const Json& value) { return value == "string"; };
  for (const char* key : {"anyOf", "oneOf"}) {
    if (!schema.contains(key) || !schema[key].is_array()) continue;
    return std::any_of(schema[key].begin(), schema[key].end(),
                       [&](const Json& one) { return may_be_text(one, root, schemas); });
  }
  if (schema.contains("$ref") && schema["$ref"].is_string()) {
    const auto& reference = schema["$ref"].get_ref<const std::string&>();
    const std::size_t name = reference.rfind('/');
    for (const char* key : {"$defs", "definitions"}) {
      if (reference == fmt::format("#/{}/{}", key, reference.substr(name + 1)) && root.contains(key) &&
          root[key].contains(reference.substr(name + 1)))
        return may_be_text(root[key][reference.substr(name + 1)], root, schemas);
    }
    return true;
  }
  for (const char* key : {"enum", "const"}) {
    if (!schema.contains(key)) continue;
    const Json values = schema[key].is_array() ? schema[key] : Json::array({schema[key]});
    return std::any_of(values.begin(), values.end(), [](const Json& value) { return value.is_string(); });
  }
  if (!schema.contains("type")) return true;
  const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
  return std::any_of(types.begin(), types.end(), is_text);
}

/// Returns the member `key` of a result, which must be a list. Throws McpError.
const Json& list_in(const Json& result, const char* method, const char* key, const std::string& server) {
  if (!result.is_object() || !result.contains(key) || !result[key].is_array())
    throw McpError(fmt::format("MCP server '{}': the answer to '{}' has no list '{}'", server, method, key));
  return result[key];
}

}  // namespace

std::string McpServerSpec::shown() const {
  std::string out;
  for (const std::string& word : command) out += (out.empty() ? "" : " ") + word;
  if (!command.empty()) return said(out, 200);
  out = url.substr(0, url.find_first_of("?#"));
  const std::size_t host = out.find("://"), at = out.find('@');
  if (host != std::string::npos && at != std::string::npos && out.find('/', host + 3) > at)
    out.erase(host + 3, at - host - 2);
  return said(out, 200);
}

McpServer::McpServer(McpServerSpec spec, const std::string& version, const std::stop_token& stop)
    : spec_(std::move(spec)) {
  const McpWait wait{Clock::now() + spec_.timeout, stop};
  try {
    connection_ = spec_.command.empty() ? connect_to_address(spec_) : connect_to_program(spec_);
    shake_hands(version, wait);
    if (has_tools_) list_tools(wait);
  } catch (const McpError& error) {
    throw McpError(fmt::format("MCP server '{}' ({}): {}", spec_.name, spec_.shown(), error.what()));
  }
}

std::string McpServer::ended() const { return connection_->ended(); }

std::string McpServer::ask(const std::string& method, const std::string& params, const McpWait& wait) const {
  try {
    return connection_->request(method, params, wait);
  } catch (const McpError& error) {
    throw McpError(fmt::format("MCP server '{}': {}", spec_.name, error.what()));
  }
}

void McpServer::shake_hands(const std::string& version, const McpWait& wait) {
  const Json params = {{"protocolVersion", kVersions.front()},
                       {"capabilities", Json::object()},
                       {"clientInfo", {{"name", "baton"}, {"version", version}}}};
  const Answer answer(connection_->request(kInitialize, json_text(params), wait));
  const Json& result = answer.result();
  const std::string agreed = text_in(result, "protocolVersion");
  if (std::find(kVersions.begin(), kVersions.end(), agreed) == kVersions.end())
    throw McpError(fmt::format("it speaks version '{}' of the protocol; expected {} or an earlier version, down to {}",
                               said(agreed, 40), kVersions.front(), kVersions.back()));
  if (result.contains("serverInfo"))
    title_ = said(text_in(result["serverInfo"], "name") + " " + text_in(result["serverInfo"], "version"), 100);
  has_tools_ =
      result.contains("capabilities") && result["capabilities"].is_object() && result["capabilities"].contains("tools");
  connection_->agree(agreed);
  connection_->notify("notifications/initialized", wait);
}

void McpServer::list_tools(const McpWait& wait) {
  std::string cursor;
  std::set<std::string> seen;                            // cursors
  const auto leave_rest = [&](const std::string& why) {  // in front: of many notes the first are shown
    left_out_.insert(left_out_.begin(), fmt::format("the rest of its list of tools is left out: {}", why));
  };
  for (int page = 0; page < kMaxPages; ++page) {
    const Json params = cursor.empty() ? Json::object() : Json{{"cursor", cursor}};
    const std::string answer = connection_->request("tools/list", json_text(params), wait);
    try {
      cursor = read_tools(answer, tools_, left_out_);
    } catch (const std::runtime_error& error) {
      throw McpError(error.what());
    }
    if (cursor.empty()) return;
    if (tools_.size() >= kMaxMcpTools) return leave_rest(fmt::format("there are {} tools before it", tools_.size()));
    if (!seen.insert(cursor).second)
      return leave_rest(fmt::format("it gives the cursor '{}' a second time", said(cursor, 40)));
  }
  leave_rest(fmt::format("it has more than {} pages", kMaxPages));
}

ToolResult McpServer::call(const std::string& tool, const std::string& arguments, const McpWait& wait) const {
  const std::string params = fmt::format(R"({{"name":{},"arguments":{}}})", json_text(Json(tool)), arguments);
  const Answer answer(ask("tools/call", params, wait));
  const Json& result = answer.result();
  ToolResult out;
  if (!result.is_object()) return {false, "error: the server's result is not an object"};
  const auto has = [&](const char* key) { return result.contains(key) && !result[key].is_null(); };
  out.ok = !has("isError") || result["isError"] == false;
  if (has("content") ? !result["content"].is_array() : !has("structuredContent"))
    return {false, fmt::format("error: the server's result has no list 'content', found {}",
                               said(has("content") ? json_text(result["content"]) : json_text(result), 200))};
  if (has("content")) {
    for (const Json& content : result["content"]) add_line(out.text, text_of(content));
  }
  if (out.text.empty() && has("structuredContent")) out.text = json_text(result["structuredContent"]);
  if (!out.ok) out.text = "error: " + (out.text.empty() ? "the tool failed without a message" : out.text);
  return out;
}

std::string McpServer::resource(const std::string& uri, const McpWait& wait) const {
  const Answer answer(ask("resources/read", json_text(Json{{"uri", uri}}), wait));
  const Json& result = answer.result();
  std::string text;
  for (const Json& content : list_in(result, "resources/read", "contents", spec_.name)) {
    const bool is_text = content.is_object() && content.contains("text");
    add_line(text,
             is_text ? text_in(content, "text") : fmt::format("[{}, which is not text]", text_in(content, "uri")));
  }
  return text;
}

std::string McpServer::prompt(const std::string& name, const std::map<std::string, std::string>& arguments,
                              const McpWait& wait) const {
  const Answer answer(ask("prompts/get", json_text(Json{{"name", name}, {"arguments", arguments}}), wait));
  const Json& result = answer.result();
  std::string text;
  for (const Json& message : list_in(result, "prompts/get", "messages", spec_.name)) {
    if (!message.is_object() || !message.contains("content"))
      throw McpError(fmt::format("MCP server '{}': a message of prompt '{}' has no content", spec_.name, name));
    add_line(text, text_of(message["content"]));
  }
  return text;
}

bool McpServer::takes_text(const std::string& tool, const std::string& argument) const {
  for (const ToolSchema& one : tools_) {
    if (one.name != tool) continue;
    const JsonDocument schema = read_json(one.shown);
    if (!schema->contains("properties") || !(*schema)["properties"].contains(argument)) return true;
    int schemas = kMaxSchemas;
    return may_be_text((*schema)["properties"][argument], *schema, schemas);
  }
  return true;
}

McpServers::~McpServers() {
  std::vector<std::jthread> ending;  // a server may take two seconds to end
  for (auto& server : running_) {
    if (server) try_to([&] { ending.emplace_back([one = std::move(server)]() mutable { one.reset(); }); });
  }
}

std::vector<McpServers::Started> McpServers::start(const std::stop_token& stop) {
  const std::lock_guard lock(mutex_);
  std::vector<Started> out;
  for (const McpServerSpec& spec : specs_) out.push_back({spec, nullptr, {}, 0.0});
  running_.resize(specs_.size());
  {
    std::vector<std::jthread> starting;
    for (std::size_t i = 0; i < specs_.size(); ++i) {
      if (running_[i] && !running_[i]->ended().empty()) running_[i].reset();
      if (running_[i]) continue;
      starting.emplace_back([&, i] {
        const Clock::time_point begin = Clock::now();
        try {
          running_[i] = std::make_shared<const McpServer>(specs_[i], version_, stop);
        } catch (const std::exception& error) {
          if (!try_to([&] { out[i].error = message_of(error); })) out[i].error = "no memory";
        }
        out[i].start_ms = milliseconds(Clock::now() - begin);
      });
    }
  }
  if (stop.stop_requested()) throw Interrupted();
  for (std::size_t i = 0; i < specs_.size(); ++i) out[i].server = running_[i];
  return out;
}

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

/// Converts an argument that a file gives as a text to a value if the tool's schema allows no text.
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

namespace {

/// If all tools together are too large for a grammar, the largest ones, as few as possible, are let go: the grammar
/// accepts any object as their arguments, and these are checked when a call is complete.
void let_go_together(const std::vector<ToolSchema>& own, std::vector<CallableTool>& more, const CallLimits& limits,
                     std::vector<std::string>& left_out) {
  std::vector<std::size_t> largest(more.size());
  std::iota(largest.begin(), largest.end(), std::size_t{0});
  std::stable_sort(largest.begin(), largest.end(), [&](std::size_t a, std::size_t b) {
    return more[a].schema.parameters.size() > more[b].schema.parameters.size();
  });
  std::string why;
  const auto fits = [&](std::size_t let_go) {
    std::vector<ToolSchema> all = own;
    for (const CallableTool& tool : more) all.push_back(tool.schema);
    for (std::size_t i = 0; i < let_go; ++i) all[own.size() + largest[i]].enforced = false;
    try {
      call_grammar({}, all, {.max_calls = limits.max_calls});
      return true;
    } catch (const ConstraintError& error) {
      why = error.what();
      return false;
    }
  };
  if (fits(0)) return;
  std::size_t low = 0, high = more.size();  // the tools do not fit if only `low` of them are let go
  while (high - low > 1) {
    const std::size_t middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  for (std::size_t i = 0; i < high; ++i) {
    CallableTool& tool = more[largest[i]];
    tool.schema.enforced = false;
    left_out.push_back(
        fmt::format("MCP server '{}': tool '{}': its calls are checked only when they are complete, because all tools "
                    "together are too large for a grammar ({})",
                    tool.options.at(kServer), tool.schema.name, why));
  }
}

}  // namespace

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
  if (limits.enforce && !more.empty()) let_go_together(own, more, limits, left_out);
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
