// SPDX-License-Identifier: Apache-2.0
// What a sandbox needs around a confined process: closed memory, the counters of its resources, its temporary folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>

#include "engine/base/system/file.h"

namespace baton {

/// When a task becomes another user, the system closes the memory that it shares with the host to debuggers and core
/// files, so that this user cannot reach into it. The destructor restores the host's own setting. Until then, other
/// threads that want to do the same wait; otherwise they would restore it too early.
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
/// cannot be read: a missing count must not be taken for zero.
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

/// Returns the bytes of files that the calling thread has made dirty. The kernel counts them in the same way for a
/// whole process. Throws std::system_error.
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
  /// too deeply to be counted, or that cannot be listed, exceed a bound. May be called while a process writes in the
  /// folder. Throws std::system_error when the content cannot be counted for a reason of the host's own.
  std::string exceeds(int entries, std::uint64_t bytes) const;

  /// True if the system attributes what is written to a file in this folder to the process that writes it, even through
  /// mapped memory. It does not do so in a tmpfs, for example. Must be called before the folder is given away. Throws
  /// std::system_error if the system does not say.
  bool counts_writes() const;

 private:
  std::filesystem::path path_;
  UniqueFd folder_;
  UniqueFd spare_;  // closed before the content is removed, which needs one descriptor more
};

/// Removes a folder with all that is in it, at any depth, whatever the permissions of its folders are. Follows no
/// links. No other process may change it meanwhile. Files that cannot be removed stay, without an error.
void remove_tree(const std::filesystem::path& folder);

}  // namespace baton
