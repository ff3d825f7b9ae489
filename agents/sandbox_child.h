// SPDX-License-Identifier: Apache-2.0
// The confined process between clone() and exec.
#pragma once

#include <linux/filter.h>
#include <sys/resource.h>

#include <cstddef>

namespace baton {

/// The child's data, made in advance, since the child shares the host's memory until it executes the program.
struct SandboxChild {
  const char* program = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;
  int input = -1;  // these three are above 2
  int output = -1;
  int landlock = -1;  // -1: none
  sock_fprog seccomp{};
  struct Limit {
    int resource = 0;
    rlimit value{};
  };
  const Limit* limits = nullptr;
  std::size_t limit_count = 0;

  // Written by the child when it could not execute the program.
  const char* failed = nullptr;
  int error = 0;
};

/// The child's function for clone() with CLONE_VM | CLONE_VFORK and all signals blocked. Returns only on failure.
int sandbox_child(void* plan);

}  // namespace baton
