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

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_s(&local, &time);
  return local;
}

}  // namespace baton
