// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/connection.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>
#include <stdexcept>

#include "agents/tools/tool.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"
#include "engine/text/schema/schema.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int kNoSuchMethod = -32601;
constexpr std::size_t kMaxValues = 1'000'000;  // in one message

std::string error_text(const Json& error) {
  if (!error.is_object()) return "an error without a message";
  std::string text = error.contains("message") && error["message"].is_string()
                         ? said(error["message"].get_ref<const std::string&>())
                         : std::string("an error without a message");
  if (error.contains("code") && error["code"].is_number_integer())
    text += fmt::format(" (code {})", error["code"].get<std::int64_t>());
  return text;
}

}  // namespace

RpcMessage read_rpc(std::string_view text) {
  JsonLimits limits;
  limits.max_values = kMaxValues;
  const JsonDocument document = read_json(text, limits);
  const Json& message = *document;
  if (!message.is_object()) throw std::runtime_error("the message is not an object");
  RpcMessage out;
  const bool has_id = message.contains("id") && !message["id"].is_null();
  if (message.contains("method")) {
    if (!message["method"].is_string()) throw std::runtime_error("the method is not a string");
    out.kind = has_id ? RpcMessage::Kind::request : RpcMessage::Kind::notification;
    out.method = message["method"].get<std::string>();
    if (has_id) out.their_id = json_text(message["id"]);
    return out;
  }
  if (has_id && message["id"].is_number_integer()) out.id = message["id"].get<std::int64_t>();
  if (message.contains("result")) {
    out.kind = RpcMessage::Kind::result;
  } else if (message.contains("error")) {
    out.kind = RpcMessage::Kind::error;
    out.error = error_text(message["error"]);
  } else {
    throw std::runtime_error("the message is neither a request nor an answer");
  }
  return out;
}

std::string rpc_request(std::int64_t id, const std::string& method, const std::string& params) {
  return fmt::format(R"({{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}})", id, method, params);
}

std::string rpc_notification(const std::string& method, const std::string& params) {
  return fmt::format(R"({{"jsonrpc":"2.0","method":"{}","params":{}}})", method, params);
}

std::string rpc_answer(const RpcMessage& request) {
  if (request.method == "ping") return fmt::format(R"({{"jsonrpc":"2.0","id":{},"result":{{}}}})", request.their_id);
  return fmt::format(R"({{"jsonrpc":"2.0","id":{},"error":{{"code":{},"message":"not supported by this client"}}}})",
                     request.their_id, kNoSuchMethod);
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxDescription = 2048;  // bytes that a model is shown
constexpr std::size_t kMaxShownSchema = 16 << 10;
constexpr std::size_t kMaxSchema = 256 << 10;
constexpr std::size_t kMaxReason = 400;   // bytes
constexpr std::size_t kMaxMembers = 256;  // in one object of a list of tools
constexpr std::string_view kAnyServerObject = R"({"type": "object"})";
/// The largest number of members of an object in a value.
std::size_t widest(const nlohmann::json& value) {
  std::size_t most = value.is_object() ? value.size() : 0;
  if (value.is_structured()) {
    for (const nlohmann::json& one : value) most = std::max(most, widest(one));
  }
  return most;
}

/// The schema by which the arguments of calls are checked. Throws std::invalid_argument, with the reason, if there is
/// none that could be held to.
std::string parameters_of(const OrderedJson& schema) {
  if (schema.is_null() || schema == true) return std::string(kAnyServerObject);
  if (!schema.is_object()) throw std::invalid_argument("expected a map");
  OrderedJson own = schema;
  if (!own.contains("type")) own["type"] = "object";
  std::string text = json_text(own);
  if (text.size() > kMaxSchema) throw std::invalid_argument(fmt::format("it has more than {} KiB", kMaxSchema >> 10));
  if (const std::string wrong = check_parameters(text, UnknownKeywords::ignored); !wrong.empty())
    throw std::invalid_argument(wrong);
  return text;
}

/// Says, in one sentence, what calls of the tool are not held to while they are decoded.
std::string unenforced_of(ToolSchema& tool) {
  std::string parts;
  try {
    const std::string own = fmt::format("tool '{}': ", tool.name);
    const std::shared_ptr<const Grammar> grammar = call_grammar({}, std::span(&tool, 1), {});
    for (const std::string& note : grammar->unenforced())
      parts += (parts.empty() ? "" : "; ") + (note.starts_with(own) ? note.substr(own.size()) : note);
    return parts.empty() ? "" : fmt::format("tool '{}': {}", tool.name, beginning(parts, kMaxReason));
  } catch (const ConstraintError& error) {
    tool.enforced = false;
    return beginning(fmt::format("{}; its calls are checked when they are complete", error.what()), kMaxReason);
  }
}

/// Returns the parameters as a model sees them.
std::string shown_schema(const OrderedJson& schema) {
  std::string shown = schema.is_object() ? json_text(schema) : std::string(kAnyServerObject);
  return shown.size() <= kMaxShownSchema ? shown : std::string(kAnyServerObject);
}

/// Adds the tool, unless there is nothing that its calls could be checked by.
void add_tool(ToolSchema tool, const OrderedJson& schema, std::vector<ToolSchema>& tools,
              std::vector<std::string>& left_out) {
  try {
    tool.parameters = parameters_of(schema);
  } catch (const std::invalid_argument& error) {
    left_out.push_back(
        fmt::format("tool '{}' is left out: its schema: {}", tool.name, beginning(error.what(), kMaxReason)));
    return;
  }
  if (std::string note = unenforced_of(tool); !note.empty()) left_out.push_back(std::move(note));
  tool.shown = shown_schema(schema);
  tools.push_back(std::move(tool));
}

}  // namespace

std::string read_tools(std::string_view message, std::vector<ToolSchema>& tools, std::vector<std::string>& left_out) {
  {
    const JsonDocument document = read_json(message);
    if (widest(*document) > kMaxMembers)  // ordered objects look their members up one by one
      throw std::runtime_error(
          fmt::format("the answer to 'tools/list' has an object of more than {} members", kMaxMembers));
  }
  const OrderedJson answer = OrderedJson::parse(message);
  const OrderedJson& result = answer.at("result");
  if (!result.is_object() || !result.contains("tools") || !result["tools"].is_array())
    throw std::runtime_error("the answer to 'tools/list' has no list of tools");
  for (const OrderedJson& one : result["tools"]) {
    const std::string name = one.is_object() && one.contains("name") && one["name"].is_string()
                                 ? one["name"].get<std::string>()
                                 : std::string();
    const auto same = [&](const ToolSchema& other) { return other.name == name; };
    if (!is_tool_name(name)) {
      left_out.push_back(fmt::format("a tool is left out, whose name is '{}'", said(name, 80)));
    } else if (tools.size() >= kMaxMcpTools) {
      left_out.push_back(fmt::format("tool '{}' is left out: there are {} before it", name, kMaxMcpTools));
    } else if (std::none_of(tools.begin(), tools.end(), same)) {
      ToolSchema tool{name, "", ""};
      if (one.contains("description") && one["description"].is_string())
        tool.description = beginning(one["description"].get<std::string>(), kMaxDescription);
      add_tool(std::move(tool), one.contains("inputSchema") ? one["inputSchema"] : OrderedJson(), tools, left_out);
    } else {
      left_out.push_back(fmt::format("tool '{}' is left out: another one before it has this name", name));
    }
    if (left_out.size() > kMaxMcpTools) {
      left_out.push_back("all tools behind it on this page are left out");
      break;
    }
  }
  const bool more = result.contains("nextCursor") && result["nextCursor"].is_string();
  return more ? result["nextCursor"].get<std::string>() : std::string();
}

}  // namespace baton
