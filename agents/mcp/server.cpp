// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "agents/mcp/message.h"
#include "agents/mcp/tool_list.h"

namespace baton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kVersions = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
constexpr int kMaxPages = 64;

std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// A member of an object that is a text, or an empty text.
std::string text_in(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                                               : std::string();
}

/// A piece of content as text: what is no text is named.
std::string text_of(const Json& content) {
  const std::string type = text_in(content, "type");
  if (type == "text") return text_in(content, "text");
  if (type == "resource" && content.contains("resource")) {
    const Json& resource = content["resource"];
    if (resource.is_object() && resource.contains("text")) return text_in(resource, "text");
    return fmt::format("[{}, which is not text]", text_in(resource, "uri"));
  }
  if (type == "resource_link") return fmt::format("[{}: {}]", text_in(content, "name"), text_in(content, "uri"));
  return fmt::format("[{} ({}), which is not text]", type.empty() ? "something" : type, text_in(content, "mimeType"));
}

void add_line(std::string& all, const std::string& text) { all += (all.empty() ? "" : "\n") + text; }

/// The result of a message, whose nesting and size were checked when it came.
Json result_of(const std::string& message) { return Json::parse(message).at("result"); }

/// The member `key` of a result, a list. Throws McpError.
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
  const Json result = result_of(connection_->request("initialize", dumped(params), wait));
  const std::string agreed = text_in(result, "protocolVersion");
  if (std::find(kVersions.begin(), kVersions.end(), agreed) == kVersions.end())
    throw McpError(fmt::format("it speaks version '{}' of the protocol; expected {}, or one before it down to {}",
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
  for (int page = 0; page < kMaxPages; ++page) {
    const Json params = cursor.empty() ? Json::object() : Json{{"cursor", cursor}};
    const std::string answer = connection_->request("tools/list", dumped(params), wait);
    try {
      cursor = read_tools(answer, tools_, left_out_);
    } catch (const std::runtime_error& error) {
      throw McpError(error.what());
    }
    if (cursor.empty() || tools_.size() >= kMaxMcpTools) return;
  }
}

ToolResult McpServer::call(const std::string& tool, const std::string& arguments, const McpWait& wait) const {
  const std::string params = fmt::format(R"({{"name":{},"arguments":{}}})", dumped(tool), arguments);
  const Json result = result_of(ask("tools/call", params, wait));
  ToolResult out;
  if (!result.is_object()) return {false, "error: the server's result is not an object"};
  out.ok = !(result.contains("isError") && result["isError"].is_boolean() && result["isError"].get<bool>());
  if (result.contains("content") && result["content"].is_array()) {
    for (const Json& content : result["content"]) add_line(out.text, text_of(content));
  }
  if (out.text.empty() && result.contains("structuredContent")) out.text = dumped(result["structuredContent"]);
  if (!out.ok) out.text = "error: " + out.text;
  return out;
}

std::string McpServer::resource(const std::string& uri, const McpWait& wait) const {
  const Json result = result_of(ask("resources/read", dumped({{"uri", uri}}), wait));
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
  const Json result = result_of(ask("prompts/get", dumped({{"name", name}, {"arguments", Json(arguments)}}), wait));
  std::string text;
  for (const Json& message : list_in(result, "prompts/get", "messages", spec_.name)) {
    if (message.is_object() && message.contains("content")) add_line(text, text_of(message["content"]));
  }
  return text;
}

std::string McpServer::type_of(const std::string& tool, const std::string& argument) const {
  for (const ToolSchema& one : tools_) {
    if (one.name != tool) continue;
    const Json schema = Json::parse(one.parameters);
    if (schema.contains("properties") && schema["properties"].contains(argument))
      return text_in(schema["properties"][argument], "type");
  }
  return {};
}

}  // namespace baton
