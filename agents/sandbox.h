// SPDX-License-Identifier: Apache-2.0
// A confined process for code that a model wrote. A seccomp filter denies new processes, the network and signals to
// other processes; Landlock denies all files except the system's and the process's own folder; resource limits bound
// the rest (only the timeout bounds the number of written files). The sandbox needs neither privileges nor an installed
// helper, and is the same for users, root and containers.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

namespace baton {

struct SandboxRequest {
  std::vector<std::string> command;                     // the first is the program's absolute path
  std::string input;                                    // its standard input
  std::vector<std::filesystem::path> readable;          // in addition to the system's folders
  std::chrono::milliseconds timeout{10000};             // limit of wall time and of processor time
  std::int64_t memory_bytes = std::int64_t{512} << 20;  // limit of the address space
  std::size_t output_bytes = 64 << 10;                  // kept bytes of the output: the first and the last half
  std::stop_token stop;
};

struct SandboxResult {
  enum class End : std::uint8_t { exited, signalled, timed_out, stopped, flooded };
  End end = End::exited;
  int code = 0;        // exit code or signal number
  std::string output;  // standard output and error, interleaved as written; any bytes
};

/// One means of confinement on this machine.
struct IsolationFact {
  std::string what;  // "processes", "network", "files", "limits"
  bool in_force = false;
  std::string how;
};

/// Immutable; run() may be called concurrently.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();

  /// Runs a process and returns when it has ended, after a stop request within milliseconds. The process gets an empty
  /// folder that is removed afterwards, a minimal environment and no file descriptor of the host. The host's signal
  /// handlers are unchanged. In a host that reaps all its children itself, the exit code is lost and reads as 0. Throws
  /// std::runtime_error when the process cannot be started or confined; without seccomp no process is run.
  SandboxResult run(const SandboxRequest& request) const;

  std::vector<IsolationFact> isolation() const;

 private:
  struct Rules;
  std::unique_ptr<const Rules> rules_;
};

}  // namespace baton
