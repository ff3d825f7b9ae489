// SPDX-License-Identifier: Apache-2.0
// A cache of the user's that is a folder of the test's own, while the object lives. One thread.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include "engine/base/system/process.h"

namespace baton::test {

class OwnCache {
 public:
  OwnCache() {
    if (const char* before = std::getenv(kVariable)) before_ = before;
    set(folder_.string());
  }
  ~OwnCache() {
    set(before_.value_or(""));  // empty is as if there was none
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;

  const std::filesystem::path& path() const { return folder_; }

 private:
#ifdef _WIN32
  static constexpr const char* kVariable = "LOCALAPPDATA";
  static void set(const std::string& value) { ::_putenv_s(kVariable, value.c_str()); }
#else
  static constexpr const char* kVariable = "XDG_CACHE_HOME";
  static void set(const std::string& value) { ::setenv(kVariable, value.c_str(), 1); }
#endif

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("baton-cache-" + std::to_string(process_number()));
  std::optional<std::string> before_;
};

}  // namespace baton::test
