// SPDX-License-Identifier: Apache-2.0
// A folder that ends with the test.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "engine/base/system/process.h"

namespace baton::test {

class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("baton-" + std::to_string(process_number()) + "-" + std::to_string(++count));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  void copy_from(const std::filesystem::path& folder) const {
    std::filesystem::copy(folder, path_,
                          std::filesystem::copy_options::overwrite_existing | std::filesystem::copy_options::recursive);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace baton::test
