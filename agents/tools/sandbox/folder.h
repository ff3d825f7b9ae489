// SPDX-License-Identifier: Apache-2.0
// The host's memory while one of its tasks has another user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

#include "engine/base/system/file.h"

namespace baton {

/// A task that becomes another user makes the memory that it shares with the host closed to debuggers and core files,
/// so that this user cannot reach into it. The host's own setting returns when the object is destroyed; until then
/// other threads wait, which would otherwise restore it too early.
class ClosedMemory {
 public:
  ClosedMemory();
  ~ClosedMemory();
  ClosedMemory(const ClosedMemory&) = delete;
  ClosedMemory& operator=(const ClosedMemory&) = delete;

 private:
  std::lock_guard<std::mutex> lock_;
  int before_;
};

// The resources that a process has used, as the system counts them.

/// The counters of a process that nobody has reaped. Each call reads them anew, and throws std::system_error when they
/// cannot be read: what is not counted must not pass for nothing.
class SandboxUsage {
 public:
  /// `user` and `group` are those of the process if root runs it as another user; otherwise 0.
  SandboxUsage(pid_t process, uid_t user, gid_t group) : process_(process), user_(user), group_(group) {}

  int threads() const;
  std::uint64_t written_bytes() const;  // by writes to files and pipes, or through mapped files

 private:
  std::string read(const char* counters) const;

  pid_t process_;
  uid_t user_;
  gid_t group_;
};

/// Returns the bytes of files that the calling thread has made dirty, as the kernel counts them for its process, too.
/// Throws std::system_error.
std::uint64_t dirtied_by_this_thread();

// The temporary folder of a confined process, whose content may be anything that a file system can hold.

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

  /// True if the system counts what is written to a file here for the process that writes, through mapped memory,
  /// too. Not so in a tmpfs, for example. Must be called before the folder is given away. Throws std::system_error
  /// if the system does not say.
  bool counts_writes() const;

 private:
  std::filesystem::path path_;
  UniqueFd folder_;
  UniqueFd spare_;  // closed before the content is removed, which needs one descriptor more
};

/// Removes a folder with all that is in it, at any depth, with or without permissions of the folders. Follows no links.
/// No other process may change it meanwhile. Files that cannot be removed stay, without an error.
void remove_tree(const std::filesystem::path& folder);

}  // namespace baton
