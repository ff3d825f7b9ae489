// SPDX-License-Identifier: Apache-2.0
// The rules of a confined process: the seccomp filter and the Landlock rules, made before the process exists.
#pragma once

#include <linux/filter.h>

#include <filesystem>
#include <vector>

#include "engine/base/unique_fd.h"

namespace baton {

/// Returns the seccomp program; empty when the kernel has no seccomp filters.
std::vector<sock_filter> make_seccomp_filter();

/// Returns the version of Landlock; 0: the kernel does not have it, or it is disabled.
int landlock_version();

/// Returns a ruleset: files and folders in `readable` may be read and executed, and `writable` allows all access. Paths
/// that do not exist are left out. The descriptor is empty when landlock_version() is 0.
UniqueFd make_landlock_rules(const std::vector<std::filesystem::path>& readable, const std::filesystem::path& writable);

}  // namespace baton
