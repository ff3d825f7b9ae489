// SPDX-License-Identifier: Apache-2.0
// Files and folders that appear whole or not at all, also when the program is interrupted.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace baton::cli {

/// Calls `write` with another name in the folder of `path`, for it to write there and to rename to `path`; `remove`,
/// with the same name, removes what lies there. It is called first, after an exception of `write`, and when the program
/// is interrupted. Of these calls no two overlap.
void write_aside(const std::filesystem::path& path,
                 const std::function<void(const std::filesystem::path& aside)>& write,
                 const std::function<void(const std::filesystem::path& aside)>& remove);

/// Makes a file of `bytes`, in pieces if need be. Returns 0, or what errno says.
int write_new_file(const std::filesystem::path& path, std::string_view bytes);

/// In place of a file of the same name. Throws Failure with kRunFailed.
void write_whole_file(const std::filesystem::path& path, std::string_view bytes);

}  // namespace baton::cli
