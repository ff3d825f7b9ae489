// SPDX-License-Identifier: Apache-2.0
// The control groups that this process is in: where Linux says what a container may use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace baton {

enum class GroupVersion : std::uint8_t { one, two };

/// Calls `visit` with the folder of each group that limits `controller` ("memory", "cpu") for this process: its own
/// and those around it, versions 2 and 1. Folders may not exist. `root` stands for "/".
void visit_groups(const std::filesystem::path& root, const std::string& controller,
                  const std::function<void(const std::filesystem::path& folder, GroupVersion)>& visit);

/// The first number in a file; nothing: there is no such file, or it begins with none ("max").
std::optional<std::int64_t> number_in(const std::filesystem::path& file);

}  // namespace baton
