// SPDX-License-Identifier: Apache-2.0
// Files: reading one whole, writing one so that it is there whole or not at all, locks, and the folder of caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/base/system/file.h"

namespace baton {

// InputFile: a regular file that is read in pieces. A file that another process truncates meanwhile gives an error,
// when a memory map would end the process.

/// Bytes of a configuration, a tokenizer or another text of a model: far beyond what models have.
inline constexpr std::uint64_t kMaxTextFile = std::uint64_t{1} << 30;

/// Safe from any thread.
class InputFile {
 public:
  /// Throws ModelError that names the file when it is missing, unreadable, not a regular file or a pointer of Git LFS.
  explicit InputFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  /// In bytes, when the file was opened.
  std::uint64_t size() const { return size_; }
  /// When the file's contents or attributes last changed, in nanoseconds since 1970, when the file was opened; 0: the
  /// system does not say.
  std::int64_t changed() const { return changed_; }

  /// Fills `out` with the bytes from `offset` on. Throws ModelError with the place when the file ends before, or cannot
  /// be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// The whole file. Throws ModelError; also when it has more than `max` bytes.
  std::string text(std::uint64_t max) const;

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  std::uint64_t size_ = 0;
  std::int64_t changed_ = 0;
};

/// What becomes of a symbolic link in place of a file that is written. replace: for files that no user names, since
/// others may be able to make links in a folder of caches.
enum class Links { follow, replace };

// AtomicFile: a file that appears complete or not at all. It is written without a name where the file system can do
// that, so that nothing stays of it when the process is killed, else under a temporary name in the same folder.

/// Every member throws std::filesystem::filesystem_error when it fails. The destructor removes an uncommitted file.
class AtomicFile {
 public:
  /// Opens an unnamed or temporary file for `file`, or for what it leads to (write_target), and makes the folder if
  /// it is missing. It has the permissions of the file that it is to replace, else those that the umask leaves.
  explicit AtomicFile(std::filesystem::path file, Links links = Links::follow);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // appends
  void write_at_start(std::span<const std::byte> bytes);
  /// Gives the file its name, in place of a file of the same name. Call it once, at the end.
  void commit();

 private:
  template <typename Make>
  void take_temporary_name(const Make& make);
  void remove_unfinished() const;
  void write_from(std::int64_t position, std::span<const std::byte> bytes);
  [[noreturn]] void fail(std::error_code error) const;

  std::filesystem::path file_;
  std::filesystem::path unfinished_;  // path of the temporary file; empty while it has no name, and once committed
  UniqueFd descriptor_;
  std::int64_t size_ = 0;
};

void write_whole(const std::filesystem::path& file, std::string_view text, Links links = Links::follow);

// A lock between programs: that of a file, as the Python package filelock uses it, so that pulls by either wait for
// the other. Two locks of one file in one program exclude each other, too.

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

// The project's folder in the user's cache, for files that can be made again.

/// Empty where the environment names no cache and no home.
std::filesystem::path user_cache();

}  // namespace baton
