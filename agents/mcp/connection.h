// SPDX-License-Identifier: Apache-2.0
// MCP (Model Context Protocol) below a server's tools: how a workflow file declares a server, connections to it, and
// the messages of JSON-RPC 2.0.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"
#include "engine/text/constrain/call_grammar.h"

namespace baton {

/// A program that is started and speaks over its standard input and output, or an address.
struct McpServerSpec {
  std::string name;
  std::vector<std::string> command;                // the program and its arguments; empty: `url`
  std::map<std::string, std::string> environment;  // in addition to the few variables that every program gets
  std::filesystem::path folder;                    // where the program starts; empty: the host's
  std::string url;
  std::map<std::string, std::string> headers;  // sent with each request to `url`; never shown
  std::chrono::milliseconds timeout{30000};    // for the start, and for a request that no model's call limits
  bool required = true;                        // a run without it fails

  /// "python3 server.py", or the address without what stands before '@' and behind '?'.
  std::string shown() const;
};

/// A server could not be started, did not answer, or answered with an error. The message names the server.
class McpError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// McpConnection: requests to a server and their answers, whatever carries them.

/// How long a request may take.
struct McpWait {
  Clock::time_point due;
  std::stop_token stop;
};

inline constexpr const char* kInitialize = "initialize";              // the one request that cannot be cancelled
inline constexpr std::size_t kMaxMcpMessage = std::size_t{16} << 20;  // bytes of one message
inline constexpr std::size_t kMaxMcpUnasked = std::size_t{16} << 20;  // bytes that a server sends between two answers

/// Its functions may be called concurrently.
class McpConnection {
 public:
  McpConnection() = default;
  McpConnection(const McpConnection&) = delete;
  McpConnection& operator=(const McpConnection&) = delete;
  /// Ends the connection; of a program also the process, with all that it has started in its process group.
  virtual ~McpConnection() = default;

  /// Sends a request with `params`, an object of JSON, and returns the server's message with the result, whose syntax
  /// has been checked. Throws McpError, and Interrupted when a stop was requested.
  virtual std::string request(const std::string& method, const std::string& params, const McpWait& wait) = 0;
  virtual void notify(const std::string& method, const McpWait& wait) = 0;
  /// The version of the protocol that the server has agreed to.
  virtual void agree(const std::string& version) = 0;
  /// Why there will be no more answers; empty: there may be.
  virtual std::string ended() const = 0;
};

/// Starts the program. Throws McpError.
std::unique_ptr<McpConnection> connect_to_program(const McpServerSpec& spec);

/// Opens no connection yet. Throws McpError if this build of the library has no HTTP.
std::unique_ptr<McpConnection> connect_to_address(const McpServerSpec& spec);

// The messages of JSON-RPC 2.0 that MCP consists of.

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
/// 64) is left out, one beyond kMaxMcpTools, and one whose JSON Schema cannot be read; `left_out` gets a sentence of
/// each, and one of each tool whose calls are not held to all of its schema while they are decoded. No tool changes
/// what another is checked by. Returns the cursor of the next page, or an empty text. Throws std::runtime_error for an
/// answer that is no list of tools, or has an object of more than 256 members.
std::string read_tools(std::string_view message, std::vector<ToolSchema>& tools, std::vector<std::string>& left_out);

}  // namespace baton
