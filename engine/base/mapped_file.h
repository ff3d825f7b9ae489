// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory, unmapped when the object goes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace baton {

class MappedFile {
 public:
  /// Throws ModelError naming the file when it is missing, not a regular file, or cannot be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace baton
