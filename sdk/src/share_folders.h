// SPDX-License-Identifier: Apache-2.0
// Where the files are that were installed with the library: models, roles and workflows, in share/baton of a prefix.
#pragma once

#include <filesystem>
#include <vector>

// The installed CMake package adds the definition to what links the static library (cmake/baton_package_share.cpp.in),
// so that a program finds the files of the prefix that its library came from, wherever the prefix was moved before.
extern "C" __attribute__((weak)) const char* baton_package_share();  // null where the package was not used

namespace baton::inline v1 {

/// The folders in which they may be, in order: from the program, from the shared library that this code is in, where
/// CMake's package was found, where the build was to be installed.
std::vector<std::filesystem::path> share_folders();

/// The .yaml and .yml files in a folder, in alphabetical order.
std::vector<std::filesystem::path> workflow_files(const std::filesystem::path& folder);

}  // namespace baton::inline v1
