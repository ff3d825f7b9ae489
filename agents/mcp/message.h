// SPDX-License-Identifier: Apache-2.0
// The messages of JSON-RPC 2.0 that MCP consists of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/constrain/call_grammar.h"

namespace baton {

struct RpcMessage {
  enum class Kind : std::uint8_t { result, error, request, notification };
  Kind kind = Kind::notification;
  std::optional<std::int64_t> id;  // id of a request of ours, in a result or an error
  std::string their_id;            // id of a request of theirs, as JSON
  std::string method;              // method of a request or a notification
  std::string error;               // what an error says, with its code, made fit for a message
};

/// Throws std::runtime_error for what is no message.
RpcMessage read_rpc(std::string_view text);

/// `params`: an object of JSON.
std::string rpc_request(std::int64_t id, const std::string& method, const std::string& params);
std::string rpc_notification(const std::string& method, const std::string& params);

/// The answer to a request of the server's: an empty object for `ping`; no other is supported.
std::string rpc_answer(const RpcMessage& request);

// The tools that a server lists, as a model is told of them and as its calls are checked.

inline constexpr std::size_t kMaxMcpTools = 128;  // from one server

/// Adds the tools of an answer to `tools/list`. A tool whose name is no name (letters, digits, '_', '-', '.'; at most
/// 64) is left out, and one beyond kMaxMcpTools; `left_out` gets a sentence of each. Keywords of a tool's JSON Schema
/// that the project does not have (docs/yaml.md) are left out of what its calls are checked by; where what is left
/// cannot be enforced, its arguments are any object. The server checks them by itself. Returns the cursor of the next
/// page, or an empty text. Throws std::runtime_error for an answer that is no list of tools,
/// or has an object of more than 256 members.
std::string read_tools(std::string_view message, std::vector<ToolSchema>& tools, std::vector<std::string>& left_out);

}  // namespace baton
