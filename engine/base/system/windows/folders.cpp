// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/folders.h"

#include <cstdlib>

namespace baton {
namespace fs = std::filesystem;
namespace {

fs::path folder_in(const wchar_t* variable) {
  const wchar_t* value = _wgetenv(variable);
  return value == nullptr ? fs::path() : fs::path(value);
}

}  // namespace

fs::path home_folder() { return folder_in(L"USERPROFILE"); }
fs::path cache_folder() { return folder_in(L"LOCALAPPDATA"); }

fs::path path_of_address(std::string_view after_scheme) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  const bool has_drive =
      after_scheme.size() > 3 && after_scheme[0] == '/' && is_letter(after_scheme[1]) && after_scheme[2] == ':';
  return after_scheme.substr(has_drive ? 1 : 0);
}

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_s(&local, &time);
  return local;
}

}  // namespace baton
