// SPDX-License-Identifier: Apache-2.0
// InputFile: a regular file that is read in pieces. A file that another process truncates meanwhile gives an error,
// where a memory map would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "engine/base/system/file.h"

namespace baton {

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

  /// Fills `out` with the bytes from `offset` on. Throws ModelError with the place when the file ends before, or cannot
  /// be read.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

  /// The whole file. Throws ModelError; also when it has more than `max` bytes.
  std::string text(std::uint64_t max) const;

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  std::uint64_t size_ = 0;
};

}  // namespace baton
