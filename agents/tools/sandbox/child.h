// SPDX-License-Identifier: Apache-2.0
// The confined process between clone() and exec.
#pragma once

#include <linux/filter.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

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

}  // namespace baton
