// SPDX-License-Identifier: Apache-2.0
#include "engine/base/user_cache.h"

#include "engine/base/system/folders.h"

namespace baton {

std::filesystem::path user_cache() {
  const std::filesystem::path cache = cache_folder();
  return cache.empty() ? cache : cache / "baton";
}

}  // namespace baton
