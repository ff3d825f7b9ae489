// SPDX-License-Identifier: Apache-2.0
// The messages of JSON-RPC 2.0 that MCP consists of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

struct RpcMessage {
  enum class Kind : std::uint8_t { result, error, request, notification };
  Kind kind = Kind::notification;
  std::optional<std::int64_t> id;  // of a request of ours, in a result or an error
  std::string their_id;            // of a request of theirs, as JSON
  std::string method;              // of a request or a notification
  std::string error;               // what an error says, with its code, made fit for a message
};

/// Throws std::runtime_error for what is no message.
RpcMessage read_rpc(std::string_view text);

/// `params`: an object of JSON.
std::string rpc_request(std::int64_t id, const std::string& method, const std::string& params);
std::string rpc_notification(const std::string& method, const std::string& params);

/// The answer to a request of the server's: an empty object for `ping`; no other is supported.
std::string rpc_answer(const RpcMessage& request);

}  // namespace baton
