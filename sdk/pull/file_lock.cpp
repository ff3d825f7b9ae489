// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace baton {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{100};

[[noreturn]] void fail(const std::filesystem::path& file, int error) {
  throw std::filesystem::filesystem_error("cannot lock", file, std::error_code(error, std::generic_category()));
}

/// Whether the descriptor is still the file of that name; who held the lock before may have removed it.
bool is_current(int descriptor, const std::filesystem::path& file) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(file.c_str(), &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, const std::stop_token& stop,
                   const std::function<void()>& on_wait) {
  std::filesystem::create_directories(file.parent_path());
  bool waited = false;
  while (!stop.stop_requested()) {
    UniqueFd descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664));
    if (!descriptor) fail(file, errno);
    if (::flock(descriptor.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_current(descriptor.get(), file)) continue;
      descriptor_ = std::move(descriptor);
      return;
    }
    if (errno == ENOSYS || errno == ENOTSUP || errno == ENOLCK) {  // a file system without locks
      descriptor_ = std::move(descriptor);
      return;
    }
    if (errno != EWOULDBLOCK && errno != EINTR) fail(file, errno);
    if (!waited && on_wait) on_wait();
    waited = true;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace baton
