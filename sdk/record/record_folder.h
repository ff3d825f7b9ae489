// SPDX-License-Identifier: Apache-2.0
// The folder of a recorded run (RunOptions::record): it appears whole or not at all.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace baton::inline v1 {

class RecordFolder {
 public:
  /// Throws InputError when `folder` exists and is not empty, unless it is a record that is to be replaced.
  explicit RecordFolder(const std::filesystem::path& folder, bool replace = false);

  /// `name` may be in a sub-folder.
  void add(const std::string& name, std::string bytes) { files_[name] = std::move(bytes); }

  /// Writes everything into a temporary folder next to the final one and renames it. Throws std::runtime_error, and
  /// then leaves nothing behind; a record that was to be replaced is as it was.
  void commit() const;

 private:
  void write(const std::filesystem::path& aside) const;
  void replace_by(const std::filesystem::path& aside) const;

  std::filesystem::path folder_;
  bool replace_;
  std::map<std::string, std::string> files_;
};

}  // namespace baton::inline v1
