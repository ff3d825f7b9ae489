// SPDX-License-Identifier: Apache-2.0
// A confined process for code that a model wrote. A seccomp filter takes away other processes, the network and signals
// to others; Landlock takes away all files but the system's and its own folder; limits bound the rest (how many files
// it writes is bounded by its time only). Nothing needs privileges or an installed helper: the same for users, root and
// containers.
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
  std::vector<std::filesystem::path> readable;          // beside the system's own folders
  std::chrono::milliseconds timeout{10000};             // wall and processor time
  std::int64_t memory_bytes = std::int64_t{512} << 20;  // address space
  std::size_t output_bytes = 64 << 10;                  // kept of what it writes: the first and the last half
  std::stop_token stop;
};

struct SandboxResult {
  enum class End : std::uint8_t { exited, signalled, timed_out, stopped, flooded };
  End end = End::exited;
  int code = 0;        // of exited and signalled
  std::string output;  // standard output and error as they came; any bytes
};

/// One line of what confines a tool on this machine.
struct IsolationFact {
  std::string what;  // "processes", "network", "files", "limits"
  bool in_force = false;
  std::string how;
};

/// Immutable; run() may be called from several threads at once.
class Sandbox {
 public:
  Sandbox();
  ~Sandbox();

  /// Returns when the process is gone, also for a stop (within milliseconds). It gets an empty folder that is removed
  /// afterwards, a bare environment, and no file descriptor of the host. The host's signal handlers are not touched; a
  /// host that reaps all its children itself loses the exit code, which then reads as 0.
  /// Throws std::runtime_error when it cannot be started, or not be confined: without seccomp nothing is run.
  SandboxResult run(const SandboxRequest& request) const;

  std::vector<IsolationFact> isolation() const;

 private:
  struct Rules;
  std::unique_ptr<const Rules> rules_;
};

}  // namespace baton
