// SPDX-License-Identifier: Apache-2.0
// McpServerSpec: a server of the Model Context Protocol (MCP) as a workflow file declares it.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace baton {

/// A program that is started and speaks over its standard input and output, or an address.
struct McpServerSpec {
  std::string name;
  std::vector<std::string> command;                // the program and its arguments; empty: `url`
  std::map<std::string, std::string> environment;  // in addition to the few variables that every program gets
  std::filesystem::path folder;                    // where the program starts; empty: the host's
  std::string url;
  std::map<std::string, std::string> headers;  // of each request to `url`; never shown
  std::chrono::milliseconds timeout{30000};    // of the start, and of a request that no model's call limits
  bool required = true;                        // a run without it fails

  /// "python3 server.py", or the address without what stands before '@' and behind '?'.
  std::string shown() const;
};

/// A server could not be started, did not answer, or answered with an error. The message names the server.
class McpError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace baton
