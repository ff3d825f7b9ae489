// SPDX-License-Identifier: Apache-2.0
// The temporary folder of a confined process, whose content may be anything that a file system can hold.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "engine/base/system/unique_fd.h"

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

  /// Makes another user the owner. Returns an error number.
  int give_to(uid_t user, gid_t group) const;

  /// Returns which bound the folder exceeds, such as "more than 10 files", or an empty text. Folders that are nested
  /// too deeply to be counted, or that cannot be listed, exceed one. May be called while a process writes in it. Throws
  /// std::system_error when the content cannot be counted for a reason of the host's own.
  std::string exceeds(int entries, std::uint64_t bytes) const;

  /// True where the system counts what is written to a file here for the process that writes, through mapped memory,
  /// too. Not so in a tmpfs, for example. Must be called before the folder is given away. Throws std::system_error
  /// where the system does not say.
  bool counts_writes() const;

 private:
  std::filesystem::path path_;
  UniqueFd folder_;
  UniqueFd spare_;  // closed before the content is removed, which needs one descriptor more
};

/// Removes a folder with all that is in it, at any depth, with or without permissions of the folders. Follows no links.
/// No other process may change it meanwhile. What cannot be removed stays, without an error.
void remove_tree(const std::filesystem::path& folder);

}  // namespace baton
