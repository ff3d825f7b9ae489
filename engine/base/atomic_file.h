// SPDX-License-Identifier: Apache-2.0
// AtomicFile: a file that appears complete or not at all. It is written without a name where the file system can do
// that, so that nothing stays of it when the process is killed, else under a temporary name in the same folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/base/system/file.h"

namespace baton {

/// Every member throws std::filesystem::filesystem_error when it fails. The destructor removes an uncommitted file.
class AtomicFile {
 public:
  /// Opens an unnamed or temporary file for `file` and makes the folder if it is missing. It has the permissions of the
  /// file that it is to replace, else those that the umask leaves.
  explicit AtomicFile(std::filesystem::path file);
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

void write_whole(const std::filesystem::path& file, std::string_view text);

}  // namespace baton
