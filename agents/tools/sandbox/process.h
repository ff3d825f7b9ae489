// SPDX-License-Identifier: Apache-2.0
// A confined process: what the child does before it is its program, and the side of the host, which starts it, watches
// it and ends it.
#pragma once

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <signal.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>

#include "agents/tools/sandbox/sandbox.h"
#include "engine/base/system/file.h"

namespace baton {

/// The child's data, made in advance, since the child shares the host's memory until it executes the program.
struct SandboxChild {
  const char* program = nullptr;  // without one, the child ends with code 0 when it is confined
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;  // as the child sees it
  int input = -1;                // these three are above 2
  int output = -1;
  int landlock = -1;                  // -1: none
  std::uint64_t landlock_folder = 0;  // the rights in the folder
  struct Mount {
    const char* source = nullptr;
    const char* target = nullptr;
    bool device = false;
  };
  const char* view = nullptr;  // in a mount namespace of its own: the folder that becomes its root
  const Mount* mounts = nullptr;
  std::size_t mount_count = 0;
  const char* folder_mount = nullptr;    // where the limited file system is mounted
  const char* folder_options = nullptr;  // and with what options
  const char* user_map = nullptr;        // in a user namespace of its own: its map of users
  const char* group_map = nullptr;       // and of groups
  uid_t user = 0;                        // the user and the group to become; 0: none
  gid_t group = 0;
  rlim_t max_threads = 0;  // counted in a user namespace of its own only; 0: no limit
  sock_fprog seccomp{};
  sock_fprog process_seccomp{};             // for this process alone; in force before the other
  const std::uint64_t* exec_key = nullptr;  // [3], with which it allows execve
  unsigned max_descriptors = 1 << 16;       // limit of the host, if they cannot be closed by one call
  struct Limit {
    int resource = 0;
    rlimit value{};
  };
  const Limit* limits = nullptr;
  std::size_t limit_count = 0;

  // Written by the child.
  bool counts_threads = false;   // max_threads is in force
  const char* failed = nullptr;  // what failed, when it could not execute the program
  int error = 0;
};

/// The child's function for clone() with CLONE_VM | CLONE_VFORK and all signals blocked. Returns only on failure.
int sandbox_child(void* plan);

// The host's side of a confined process: starts it, watches it and ends it.

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
  /// once and every few milliseconds whether the process has used more than it may. An exception of it ends the watch
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
