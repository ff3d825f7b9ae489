// SPDX-License-Identifier: Apache-2.0
// The host's side of a confined process: starts it, watches it and ends it.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <string>
#include <system_error>

#include "agents/tools/sandbox/child.h"
#include "agents/tools/sandbox/sandbox.h"
#include "engine/base/system/file.h"

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
/// gives up after two seconds if this process may not signal it.
class SandboxProcess {
 public:
  /// Starts the child as posix_spawn does, with `namespaces` (flags of clone): the host's pages are not copied, and
  /// this thread waits until the child has executed its program. Throws SandboxNotStarted when it could not.
  SandboxProcess(SandboxChild& child, int namespaces);
  ~SandboxProcess();
  SandboxProcess(const SandboxProcess&) = delete;
  SandboxProcess& operator=(const SandboxProcess&) = delete;

  pid_t id() const { return id_; }

  /// Waits until the process ends by itself or has to be killed, and returns which. `exceeds`, if given, is asked at
  /// once and every few milliseconds whether the process has used more than it may. What it throws ends the watch
  /// unless the process has ended, whose use can no longer be told.
  SandboxResult::End watch(int stream, KeptOutput& output, const SandboxRequest& request,
                           const std::function<bool()>& exceeds) const;

  /// Kills the process if it still runs, and reaps it. Returns 0 with its exit status, ECHILD when someone else reaped
  /// it, and another error number when it could not be killed and still runs.
  int end(siginfo_t& status);

 private:
  bool exceeds_now(const std::function<bool()>& exceeds) const;

  UniqueFd handle_;  // a pidfd, which cannot refer to another process after the pid is reused
  pid_t id_ = 0;
};

}  // namespace baton
