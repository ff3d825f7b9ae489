// SPDX-License-Identifier: Apache-2.0
#include "agents/mcp/message.h"

#include <fmt/format.h>

#include <stdexcept>

#include "engine/base/json/json_reader.h"
#include "engine/base/json/json_text.h"
#include "engine/base/said.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr int kNoSuchMethod = -32601;
constexpr std::size_t kMaxValues = 1'000'000;  // of one message

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

}  // namespace baton
