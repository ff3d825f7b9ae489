// SPDX-License-Identifier: Apache-2.0
// MappedFile: a file that is mapped read-only into memory until the object is destroyed.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace baton {

class MappedFile {
 public:
  /// Throws ModelError that names the file when it is missing, unreadable or not a regular file.
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
