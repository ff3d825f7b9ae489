// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/connection.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

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

constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxDescription = 2048;  // bytes that a model is shown
constexpr std::size_t kMaxShownSchema = 16 << 10;
constexpr std::size_t kMaxSchema = 64 << 10;
constexpr std::size_t kMaxMembers = 256;  // in one object of a list of tools
constexpr std::string_view kAnyObject = R"({"type": "object"})";
constexpr std::array<std::string_view, 13> kPlainKeywords = {
    "type",      "enum",     "const",    "minimum", "maximum",  "exclusiveMinimum", "minLength",
    "maxLength", "minItems", "maxItems", "pattern", "required", "description"};
constexpr std::array<std::string_view, 4> kMaps = {"properties", "patternProperties", "definitions", "$defs"};
constexpr std::array<std::string_view, 5> kSchemas = {"items", "additionalProperties", "if", "then", "else"};
constexpr std::array<std::string_view, 3> kLists = {"anyOf", "oneOf", "allOf"};
constexpr std::string_view kDefs = "#/$defs/";

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

/// Returns the schema in the project's subset. Keywords that are left out make it wider.
OrderedJson in_subset(const OrderedJson& schema) {
  if (!schema.is_object()) return schema.is_boolean() ? schema : OrderedJson(true);
  OrderedJson out = OrderedJson::object();
  for (const auto& [keyword, value] : schema.items()) {
    if (is_one_of(kMaps, keyword) && value.is_object()) {
      OrderedJson& map = out[keyword == "$defs" ? "definitions" : keyword];
      for (const auto& [name, one] : value.items()) map[name] = in_subset(one);
    } else if (keyword == "items" && (value.is_array() || schema.contains("prefixItems"))) {
      continue;  // tuples: it is the schema of some of the elements
    } else if (is_one_of(kSchemas, keyword)) {
      out[keyword] = in_subset(value);
    } else if (is_one_of(kLists, keyword) && value.is_array()) {
      OrderedJson& list = out[keyword == "oneOf" ? "anyOf" : keyword];
      for (const OrderedJson& one : value) list.push_back(in_subset(one));
    } else if (keyword == "$ref" && value.is_string()) {
      const auto& name = value.get_ref<const std::string&>();
      out[keyword] = name.starts_with(kDefs) ? "#/definitions/" + name.substr(kDefs.size()) : name;
    } else if (is_one_of(kPlainKeywords, keyword)) {
      out[keyword] = value;
    }
  }
  return out;
}

/// The largest number of members of an object in a value.
std::size_t widest(const nlohmann::json& value) {
  std::size_t most = value.is_object() ? value.size() : 0;
  if (value.is_structured()) {
    for (const nlohmann::json& one : value) most = std::max(most, widest(one));
  }
  return most;
}

/// Returns the schema by which the arguments of calls are checked.
std::string parameters_of(const std::string& name, const OrderedJson& schema) {
  if (!schema.is_object() || json_text(schema).size() > kMaxSchema) return std::string(kAnyObject);
  OrderedJson subset = in_subset(schema);
  if (!subset.contains("type")) subset["type"] = "object";
  const ToolSchema tool{name, "", json_text(subset)};
  if (!check_parameters(tool.parameters).empty()) return std::string(kAnyObject);
  try {
    call_grammar({}, std::span(&tool, 1), 1, true);
  } catch (const ConstraintError&) {
    return std::string(kAnyObject);
  }
  return tool.parameters;
}

/// Returns the parameters as a model sees them.
std::string shown_schema(const OrderedJson& schema) {
  std::string shown = schema.is_object() ? json_text(schema) : std::string(kAnyObject);
  return shown.size() <= kMaxShownSchema ? shown : std::string(kAnyObject);
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
      const OrderedJson schema = one.contains("inputSchema") ? one["inputSchema"] : OrderedJson();
      tool.parameters = parameters_of(name, schema);
      tool.shown = shown_schema(schema);
      tools.push_back(std::move(tool));
    }
    if (left_out.size() > kMaxMcpTools) break;
  }
  const bool more = result.contains("nextCursor") && result["nextCursor"].is_string();
  return more ? result["nextCursor"].get<std::string>() : std::string();
}

}  // namespace baton
