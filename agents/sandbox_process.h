// SPDX-License-Identifier: Apache-2.0
// The host's side of a confined process: starts it, watches it and ends it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <system_error>

#include "agents/sandbox.h"
#include "agents/sandbox_child.h"
#include "engine/base/unique_fd.h"

namespace baton {

/// Keeps the first and the last half of the output.
class KeptOutput {
 public:
  explicit KeptOutput(std::size_t limit);
  void add(const char* data, std::size_t bytes);
  std::size_t total() const { return total_; }
  bool flooded() const;  // far more came than is kept
  std::string text() &&;

 private:
  std::size_t half_;
  std::size_t total_ = 0;
  std::string head_, tail_;
};

/// The child could not be made, or could not confine itself or execute its program.
class SandboxNotStarted : public std::system_error {
 public:
  using std::system_error::system_error;
};

/// A running or ended child that nobody has reaped. Destroying the object kills and reaps it, or
/// gives up after two seconds where this process may not signal it.
class SandboxProcess {
 public:
  /// Starts the child as posix_spawn does, with `namespaces` (flags of clone): the host's pages are not copied, and
  /// this thread waits until the child has executed its program. Throws SandboxNotStarted when it could not.
  SandboxProcess(SandboxChild& child, int namespaces);
  ~SandboxProcess();
  SandboxProcess(const SandboxProcess&) = delete;
  SandboxProcess& operator=(const SandboxProcess&) = delete;

  /// Waits until the process ends by itself or has to be killed, and returns which. `exceeds`, if given, is asked every
  /// few milliseconds whether the process has used more than it may.
  SandboxResult::End watch(int stream, KeptOutput& output, const SandboxRequest& request,
                           const std::function<bool()>& exceeds) const;

  /// Kills the process if it still runs, and reaps it. Returns true with its exit status, false when someone else
  /// reaped it.
  bool end(siginfo_t& status);

  int threads() const;                  // 0: unknown
  std::uint64_t written_bytes() const;  // by writes to files and pipes, or through mapped files; 0: unknown

 private:
  UniqueFd handle_;  // a pidfd, which cannot refer to another process after the pid is reused
  pid_t pid_ = 0;
};

}  // namespace baton
