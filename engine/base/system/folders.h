// SPDX-License-Identifier: Apache-2.0
// Where users keep their files, lists of folders in variables, and local time.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

/// The user's home folder; empty: the environment names none.
std::filesystem::path home_folder();

/// The folder of the user's caches; empty: the environment names neither it nor a home.
std::filesystem::path cache_folder();

/// What follows "file://" in an address, decoded, as a path: with drive letters, "/C:/x" means "C:/x".
std::filesystem::path path_of_address(std::string_view after_scheme);

/// The folders in the value of a variable such as PATH; empty ones are left out.
std::vector<std::string> folders_of_list(std::string_view list);

std::tm local_time(std::time_t time);

}  // namespace baton
