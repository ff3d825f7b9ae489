// SPDX-License-Identifier: Apache-2.0
// McpServerSpec: a server of the Model Context Protocol (MCP) as a workflow file declares it.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/clock.h"

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

}  // namespace baton
