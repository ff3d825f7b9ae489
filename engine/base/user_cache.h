// SPDX-License-Identifier: Apache-2.0
// The project's folder in the user's cache, for files that can be made again.
#pragma once

#include <filesystem>

namespace baton {

/// Empty where the environment names no cache and no home.
std::filesystem::path user_cache();

}  // namespace baton
