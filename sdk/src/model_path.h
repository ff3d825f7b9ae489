// SPDX-License-Identifier: Apache-2.0
// Where the files are that were installed with the library: models, roles and workflows, in share/baton of a prefix.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

// The installed CMake package adds the definition to what links the static library (cmake/baton_package_share.cpp.in),
// so that a program finds the files of the prefix that its library came from, wherever the prefix was moved before.
#ifndef _WIN32                                                       // where it is not used
extern "C" __attribute__((weak)) const char* baton_package_share();  // null if the package was not used
#endif

namespace baton::inline v1 {

/// The folders in which they may be, in order: from the program, from the shared library that this code is in, where
/// CMake's package was found, where the build was to be installed.
std::vector<std::filesystem::path> share_folders();

/// The wanted entries among the first 1,000 of a folder, in alphabetical order; none if it cannot be read.
std::vector<std::filesystem::path> entries_where(const std::filesystem::path& folder,
                                                 const std::function<bool(const std::filesystem::path&)>& wanted);

/// The .yaml and .yml files in a folder, in alphabetical order.
std::vector<std::filesystem::path> workflow_files(const std::filesystem::path& folder);

// Where a model is: a path as it stands, a bare name looked for in the usual places (baton/system.h), or a published
// model in the cache (sdk/hub).

/// `model` as written in a workflow or an option; relative paths start in `base`, "hf:org/name" and URLs mean what was
/// pulled. A folder counts when it holds
/// config.json, and a file when it is a .gguf one. Throws ResourceError, whose message lists the folders that were
/// searched.
std::filesystem::path find_model(const std::string& model, const std::filesystem::path& base);

}  // namespace baton::inline v1
