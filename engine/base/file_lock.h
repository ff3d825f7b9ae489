// SPDX-License-Identifier: Apache-2.0
// A lock between programs: that of a file, as the Python package filelock uses it, so that pulls by either wait for
// the other. Two locks of one file in one program exclude each other, too.
#pragma once

#include <filesystem>
#include <functional>
#include <stop_token>

#include "engine/base/system/file.h"

namespace baton {

class FileLock {
 public:
  /// Waits until the lock is free; calls `on_wait` once if it is not. Throws filesystem_error when the file cannot be
  /// made. Not locked when stopped; on a file system that has no locks it counts as locked. An `on_wait` that throws
  /// ends the waiting. `removes`: the file ends with the lock.
  FileLock(std::filesystem::path file, const std::stop_token& stop, const std::function<void()>& on_wait,
           bool removes = false);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool locked() const { return static_cast<bool>(descriptor_); }

 private:
  std::filesystem::path file_;
  bool removes_;
  UniqueFd descriptor_;  // closing it unlocks
};

}  // namespace baton
