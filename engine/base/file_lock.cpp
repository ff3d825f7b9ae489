// SPDX-License-Identifier: Apache-2.0
#include "engine/base/file_lock.h"

#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

namespace baton {
namespace {

constexpr std::chrono::milliseconds kBetweenTries{100};

[[noreturn]] void cannot_lock(const std::filesystem::path& file, int error) {
  throw std::filesystem::filesystem_error("cannot lock", file, std::error_code(error, std::generic_category()));
}

}  // namespace

FileLock::FileLock(std::filesystem::path file, const std::stop_token& stop, const std::function<void()>& on_wait,
                   bool removes)
    : file_(std::move(file)), removes_(removes) {
  std::filesystem::create_directories(file_.parent_path());
  bool waited = false;
  while (!stop.stop_requested()) {
    UniqueFd descriptor = open_file(file_, Open::read | Open::write | Open::create);
    if (!descriptor) cannot_lock(file_, errno);
    const FileLockState state = try_lock(descriptor);
    if (state == FileLockState::failed) cannot_lock(file_, errno);
    if (state == FileLockState::locked && !has_name(descriptor, file_))
      continue;  // who held it before removed the file
    if (state != FileLockState::busy) {
      descriptor_ = std::move(descriptor);
      return;
    }
    if (!waited && on_wait) on_wait();
    waited = true;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

/// Removed while it is locked: whoever locks it later finds that it has its name no more.
FileLock::~FileLock() {
  std::error_code ignored;
  if (removes_ && descriptor_) std::filesystem::remove(file_, ignored);
}

}  // namespace baton
