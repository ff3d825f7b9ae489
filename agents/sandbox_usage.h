// SPDX-License-Identifier: Apache-2.0
// What a process has used, as the system counts it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace baton {

/// The counters of a process that nobody has reaped. Each call reads them anew, and throws std::system_error when they
/// cannot be read: what is not counted must not pass for nothing.
class SandboxUsage {
 public:
  /// `user` and `group` are those of the process where root has made it another user's; otherwise 0.
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

}  // namespace baton
