// SPDX-License-Identifier: Apache-2.0
// The temporary folder of a confined process, whose content may be anything that a file system can hold.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

namespace baton {

/// A new folder that only its owner may enter; removed with its content when the object is destroyed.
class SandboxFolder {
 public:
  /// Throws std::runtime_error when the folder cannot be made.
  SandboxFolder();
  ~SandboxFolder();
  SandboxFolder(const SandboxFolder&) = delete;
  SandboxFolder& operator=(const SandboxFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// Makes another user the owner. Throws std::runtime_error.
  void give_to(uid_t user, gid_t group) const;

  /// True when the folder has more than this many files and folders, or bytes in them, or is nested too deeply to be
  /// counted. May be called while a process writes in it.
  bool holds_more_than(int entries, std::uint64_t bytes) const;

 private:
  std::filesystem::path path_;
};

/// Removes a folder with all that is in it, at any depth, with or without permissions of the folders. Follows no links.
/// No other process may change it meanwhile. What cannot be removed stays, without an error.
void remove_tree(const std::filesystem::path& folder);

}  // namespace baton
