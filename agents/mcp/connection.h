// SPDX-License-Identifier: Apache-2.0
// McpConnection: requests to a server and their answers, whatever carries them.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>

#include "agents/mcp/server_spec.h"
#include "engine/base/clock.h"

namespace baton {

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

/// Opens no connection yet. Throws McpError where this build of the library has no HTTP.
std::unique_ptr<McpConnection> connect_to_address(const McpServerSpec& spec);

}  // namespace baton
