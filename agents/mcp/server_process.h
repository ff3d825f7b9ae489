// SPDX-License-Identifier: Apache-2.0
// ServerProcess: the program of an MCP server, in a process group of its own.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "agents/mcp/server_spec.h"
#include "engine/base/system/unique_fd.h"

namespace baton {

class ServerProcess {
 public:
  /// Starts the program with a small environment (PATH, HOME and the like, and what the file gives), no file descriptor
  /// of the host's, and signals as a program expects them. Throws McpError.
  explicit ServerProcess(const McpServerSpec& spec);
  /// Closes the program's input, and ends what has not ended within a second: first by SIGTERM, then by SIGKILL, with
  /// all processes of its group. Those of a process that the host has reaped are left alone.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  int input() const { return input_.get(); }    // its standard input; -1: it has been closed
  int output() const { return output_.get(); }  // its standard output; reading does not wait
  int errors() const { return errors_.get(); }  // its standard error; reading does not wait
  int handle() const { return handle_.get(); }  // readable once the program has ended; -1: the system has none

  /// Writes as many of the bytes as the program's pipe takes now, and returns their number. The input is closed where
  /// the program has closed it. Throws McpError.
  std::size_t write(std::string_view bytes);

  /// "ended with exit code 1", "was killed by signal 9", once it has ended within `patience`; else nothing. The status
  /// of a process that the host has reaped is not known: "ended".
  std::string how_it_ended(std::chrono::milliseconds patience);

 private:
  void signal(int number) const;

  UniqueFd input_, output_, errors_;
  UniqueFd handle_;  // a pidfd
  pid_t id_ = 0;
  bool reaped_ = false;
};

}  // namespace baton
