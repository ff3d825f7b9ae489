// SPDX-License-Identifier: Apache-2.0
// A confined process for code that a model wrote, in layers: a seccomp filter that allows listed system calls only,
// Landlock, namespaces with a file tree of its own, an unprivileged user, and limits. The first and the last hold
// everywhere, the others if the system has them. docs/decisions/tools.md
#pragma once

#include <baton/system_facts.h>

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
  std::vector<std::filesystem::path> readable;          // in addition to the system's folders; absolute
  std::chrono::milliseconds timeout{10000};             // limit of wall time and of processor time
  std::int64_t memory_bytes = std::int64_t{512} << 20;  // limit of the address space
  std::size_t output_bytes = 64 << 10;                  // kept bytes of the output: the first and the last half
  std::stop_token stop;
};

struct SandboxResult {
  enum class End : std::uint8_t { exited, signalled, timed_out, stopped, flooded, exceeded };
  End end = End::exited;
  int code = 0;          // exit code or signal number
  std::string signal;    // its name
  std::string exceeded;  // when it ended for that: of what it used more than allowed, such as "more than 128 threads"
  std::string output;    // standard output and error, interleaved as written; any bytes
};

/// The layers that are used if the system has them. Tests switch them off to see what the others hold.
struct SandboxLayers {
  bool landlock = true;
  bool namespaces = true;
};

/// Why no process can be confined on this system, so that none is run; empty: it has a sandbox.
std::string why_no_sandbox();

/// Immutable; run() may be called concurrently.
class Sandbox {
 public:
  explicit Sandbox(SandboxLayers layers = {});
  ~Sandbox();

  /// Runs a process and returns when it has ended, after a stop request within milliseconds. The process gets an empty
  /// folder that is removed afterwards, a minimal environment and no file descriptor of the host. The host's signal
  /// handlers are unchanged. In a host that reaps all its children itself, the exit code is lost and reads as 0. Throws
  /// std::runtime_error when the process cannot be started, confined or ended, or what it uses cannot be counted;
  /// without seccomp no process is run.
  SandboxResult run(const SandboxRequest& request) const;

  /// The layers, and which of them hold here. The first call of this or of run() tries them with a process, as does one
  /// after the host has given up rights. A failure for lack of resources throws std::runtime_error, and is tried
  /// again by the next call.
  std::vector<IsolationFact> isolation() const;

 private:
  struct Rules;
  std::unique_ptr<Rules> rules_;
};

}  // namespace baton
