// SPDX-License-Identifier: Apache-2.0
// The seccomp filter of a confined process: the system calls that it may make, and with which arguments.
// docs/decisions/tools.md
#pragma once

#include <linux/filter.h>

#include <array>
#include <cstdint>
#include <vector>

namespace baton {

/// Returns the seccomp program; empty when the kernel has no seccomp filters. Calls that it does not allow fail with
/// EPERM. Calls that are newer than the list, or of another architecture, fail with ENOSYS, so that the C library falls
/// back. Throws std::runtime_error.
std::vector<sock_filter> make_seccomp_filter();

/// Random numbers that a process gives to its first execve, in the three registers that the call does not use. The
/// program does not have them: execve replaces the memory and clears the registers.
using ExecKey = std::array<std::uint64_t, 3>;

/// Throws std::system_error.
ExecKey make_exec_key();

/// Returns a second filter, for one process. It forbids execve without the key and, unless `shared_files`, mappings
/// that write through to their files.
std::vector<sock_filter> make_process_filter(const ExecKey& key, bool shared_files);

}  // namespace baton
