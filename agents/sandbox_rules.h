// SPDX-License-Identifier: Apache-2.0
// What a confined process may do: the seccomp filter and the Landlock rules, made before the process exists.
#pragma once

#include <linux/filter.h>

#include <filesystem>
#include <vector>

#include "engine/base/unique_fd.h"

namespace baton {

/// Empty where the kernel has no seccomp filters.
std::vector<sock_filter> make_seccomp_filter();

/// The version of Landlock; 0: the kernel has none or it is off.
int landlock_version();

/// `readable` files and folders may be read and run, `writable` everything. Paths that do not exist are left out.
/// Holds nothing where landlock_version() is 0.
UniqueFd make_landlock_rules(const std::vector<std::filesystem::path>& readable, const std::filesystem::path& writable);

}  // namespace baton
