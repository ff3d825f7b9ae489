// SPDX-License-Identifier: Apache-2.0
#include "engine/base/user_cache.h"

#include <cstdlib>

namespace baton {

std::filesystem::path user_cache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return std::filesystem::path(cache) / "baton";  // a relative path is ignored
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".cache" / "baton";
  return {};
}

}  // namespace baton
