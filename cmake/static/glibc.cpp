// SPDX-License-Identifier: Apache-2.0
// Functions of newer C libraries, for programs that are linked with an older one (BATON_LIBC): the compiler's own
// libraries and headers, and MCP servers, use them. docs/decisions/interfaces.md
#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" {

/// glibc 2.32: whether counters need no atomic operations.
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

/// glibc 2.36: std::random_device asks it. Ends the program where the kernel has no random numbers, as glibc does.
std::uint32_t arc4random() {
  std::uint32_t value = 0;
  if (getentropy(&value, sizeof(value)) != 0) std::abort();
  return value;
}

/// glibc 2.34. Files that other threads open before the new process starts have to close themselves (O_CLOEXEC).
int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t* actions, int from) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return errno;
  int error = 0;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (error == 0 && fd >= from) error = posix_spawn_file_actions_addclose(actions, fd);
  }
  closedir(folder);
  return error;
}

}  // extern "C"
