// SPDX-License-Identifier: Apache-2.0
// The folder of `run --record`: it appears whole or not at all.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace baton::cli {

class RecordFolder {
 public:
  /// Throws Failure when `folder` exists and is not empty, unless it is to be replaced, or cannot be created.
  explicit RecordFolder(std::filesystem::path folder, bool replace = false);

  /// `name` may be in a sub-folder.
  void add(const std::string& name, std::string bytes) { files_[name] = std::move(bytes); }

  /// Writes everything into a temporary folder next to the final one and renames it. On Failure nothing is left behind.
  void commit() const;

 private:
  std::filesystem::path folder_;
  bool replace_;
  std::map<std::string, std::string> files_;
};

}  // namespace baton::cli
