// SPDX-License-Identifier: Apache-2.0
// McpServers: the servers of a run, or of the runs of a session.
#pragma once

#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <vector>

#include "agents/mcp/server.h"

namespace baton {

/// Its functions may be called concurrently. Destroying the object ends the servers that nobody uses any more.
class McpServers {
 public:
  McpServers(std::vector<McpServerSpec> specs, std::string version)
      : specs_(std::move(specs)), version_(std::move(version)) {}
  ~McpServers();
  McpServers(const McpServers&) = delete;
  McpServers& operator=(const McpServers&) = delete;

  /// A server, where it runs, and how it got there.
  struct Started {
    McpServerSpec spec;
    std::shared_ptr<const McpServer> server;  // null: it could not be started, or was not required
    std::string error;                        // why
    double start_ms = 0.0;                    // 0: it ran already
  };

  /// Starts, concurrently, those that do not run. In the order of the specs. Throws Interrupted, and std::system_error
  /// where no thread can be started.
  std::vector<Started> start(const std::stop_token& stop);

 private:
  const std::vector<McpServerSpec> specs_;
  const std::string version_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const McpServer>> running_;  // one of each spec; null: none
};

}  // namespace baton
