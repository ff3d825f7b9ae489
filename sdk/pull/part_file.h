// SPDX-License-Identifier: Apache-2.0
// A file on its way: its bytes so far under the name TARGET.incomplete, from which a later download goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>

#include "engine/base/system/file.h"
#include "sdk/pull/checksum.h"

namespace baton {

/// Members throw std::filesystem::filesystem_error when reading or writing fails.
class PartFile {
 public:
  /// Opens what an earlier download left, or an empty file.
  explicit PartFile(std::filesystem::path target);
  /// Removes a part without a byte.
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  void restart();  // drops all bytes
  void append(std::span<const std::byte> bytes);

  /// The checksum of all bytes, in hexadecimal digits. Reads the file as far as it was not written by this object.
  /// Empty when stopped.
  std::string hex(Checksum::Kind kind, const std::stop_token& stop);
  /// Lets `append` compute the checksum as bytes come, of a file that will have `size` bytes. False when stopped.
  bool expect(Checksum::Kind kind, std::int64_t size, const std::stop_token& stop);

  /// The first bytes, at most `count`.
  std::string head(std::size_t count) const;

  /// What a server calls this version of the file (an ETag or a date); a later part depends on it. Empty: unknown.
  std::string validator() const;
  void set_validator(const std::string& text);

  /// Gives the file its name, after its contents have reached the disk.
  void commit();
  /// Removes it.
  void discard();

 private:
  /// False when stopped.
  bool add_from_disk(ChecksumStream& stream, const std::stop_token& stop) const;
  [[noreturn]] void fail(int error) const;

  std::filesystem::path target_, part_, validator_;
  UniqueFd descriptor_;
  std::int64_t bytes_ = 0;
  Checksum::Kind kind_ = Checksum::Kind::none;
  std::int64_t size_ = -1;
  ChecksumStream stream_{Checksum::Kind::none, 0};
};

}  // namespace baton
