// SPDX-License-Identifier: Apache-2.0
#include "sdk/pull/file_lock.h"

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

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, const std::stop_token& stop,
                   const std::function<void()>& on_wait) {
  std::filesystem::create_directories(file.parent_path());
  bool waited = false;
  while (!stop.stop_requested()) {
    UniqueFd descriptor = open_file(file, Open::read | Open::write | Open::create);
    if (!descriptor) fail(file, errno);
    const FileLockState state = try_lock(descriptor);
    if (state == FileLockState::failed) fail(file, errno);
    if (state == FileLockState::locked && !has_name(descriptor, file)) continue;  // who held it before removed the file
    if (state != FileLockState::busy) {
      descriptor_ = std::move(descriptor);
      return;
    }
    if (!waited && on_wait) on_wait();
    waited = true;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace baton
