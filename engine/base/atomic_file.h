// SPDX-License-Identifier: Apache-2.0
// AtomicFile: a file that appears complete or not at all. It is written under a temporary name in the same folder and
// renamed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/unique_fd.h"

namespace baton {

/// Every member throws std::filesystem::filesystem_error when it fails. The destructor removes an uncommitted file.
class AtomicFile {
 public:
  /// Opens a temporary file for `file` and makes the folder if it is missing.
  explicit AtomicFile(std::filesystem::path file);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);  // appends
  void write_at_start(std::span<const std::byte> bytes);
  /// Renames the temporary file, which replaces a file of the same name. Call it once, at the end.
  void commit();

 private:
  void write_at(std::size_t position, std::span<const std::byte> bytes);
  [[noreturn]] void fail(int error) const;

  std::filesystem::path file_;
  std::string unfinished_;  // path of the temporary file; empty once committed
  UniqueFd descriptor_;
  std::size_t size_ = 0;
};

void write_whole(const std::filesystem::path& file, std::string_view text);

}  // namespace baton
