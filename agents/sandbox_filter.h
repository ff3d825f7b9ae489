// SPDX-License-Identifier: Apache-2.0
// The seccomp filter of a confined process: the system calls that it may make, and with which arguments.
// docs/decisions/0034-sandbox-allowlist.md
#pragma once

#include <linux/filter.h>

#include <vector>

namespace baton {

/// Returns the seccomp program; empty when the kernel has no seccomp filters. What it does not allow fails with EPERM;
/// with ENOSYS for calls that are newer than the list or of another architecture, so that the C library falls back.
std::vector<sock_filter> make_seccomp_filter();

}  // namespace baton
