// SPDX-License-Identifier: Apache-2.0
#include "engine/base/system/folders.h"

#include <cstdlib>

namespace baton {
namespace fs = std::filesystem;

fs::path home_folder() {
  const char* home = std::getenv("HOME");
  return home == nullptr ? fs::path() : fs::path(home);
}

/// By the XDG base directory specification, which ignores relative paths.
fs::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return cache;
  const fs::path home = home_folder();
  return home.is_absolute() ? home / ".cache" : fs::path();
}

fs::path path_of_address(std::string_view after_scheme) { return after_scheme; }

std::tm local_time(std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  return local;
}

}  // namespace baton
