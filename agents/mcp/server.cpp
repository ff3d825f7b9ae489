// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <thread>

#include "agents/mcp/message.h"
#include "engine/base/errors.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/string_search.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kVersions = {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"};
constexpr int kMaxPages = 64;
constexpr int kMaxSchemas = 256;  // that are examined for one argument

/// Returns a member of an object if it is a text, else an empty text.
std::string text_in(const Json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string() ? object[key].get<std::string>()
                                                                               : std::string();
}

/// Returns a piece of content as text; content of other types is only named.
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

/// A message with a result, for as long as the result is used.
class Answer {
 public:
  explicit Answer(const std::string& message) : document_(read_json(message)) {}
  const Json& result() const { return (*document_)["result"]; }

 private:
  JsonDocument document_;
};

/// Returns whether a text may fit the schema, judged by types. `schemas`: how many may be examined.
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
  const Answer answer(connection_->request(kInitialize, json_text(params), wait));
  const Json& result = answer.result();
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
    const std::string answer = connection_->request("tools/list", json_text(params), wait);
    try {
      cursor = read_tools(answer, tools_, left_out_);
    } catch (const std::runtime_error& error) {
      throw McpError(error.what());
    }
    if (cursor.empty() || tools_.size() >= kMaxMcpTools) return;
  }
}

ToolResult McpServer::call(const std::string& tool, const std::string& arguments, const McpWait& wait) const {
  const std::string params = fmt::format(R"({{"name":{},"arguments":{}}})", json_text(Json(tool)), arguments);
  const Answer answer(ask("tools/call", params, wait));
  const Json& result = answer.result();
  ToolResult out;
  if (!result.is_object()) return {false, "error: the server's result is not an object"};
  out.ok = !(result.contains("isError") && result["isError"].is_boolean() && result["isError"].get<bool>());
  if (result.contains("content") && result["content"].is_array()) {
    for (const Json& content : result["content"]) add_line(out.text, text_of(content));
  }
  if (out.text.empty() && result.contains("structuredContent")) out.text = json_text(result["structuredContent"]);
  if (!out.ok) out.text = "error: " + out.text;
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
    if (message.is_object() && message.contains("content")) add_line(text, text_of(message["content"]));
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
  std::vector<std::jthread> ending;  // a server may take two seconds
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

}  // namespace baton
