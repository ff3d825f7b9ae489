// SPDX-License-Identifier: Apache-2.0
// The Landlock rules of a confined process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/base/system/unique_fd.h"

namespace baton {

/// Returns the version of Landlock; 0: the kernel does not have it, or it is disabled.
int landlock_version();

struct LandlockRules {
  UniqueFd rules;                 // empty when landlock_version() is 0
  std::uint64_t folder_rights{};  // the rights of the process in its own folder, to which the process adds the rule
};

/// Returns rules by which files and folders in `readable` may be read and executed, and nothing else: no other files,
/// no TCP, no signals and no abstract sockets outside, as far as the kernel's version knows them. Paths that do not
/// exist or may not be read are left out. Throws std::runtime_error when the rules cannot be made.
LandlockRules make_landlock_rules(const std::vector<std::filesystem::path>& readable);

}  // namespace baton
