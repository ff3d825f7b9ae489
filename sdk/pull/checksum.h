// SPDX-License-Identifier: Apache-2.0
// Digest: SHA-256 or SHA-1 of bytes that come in pieces, by OpenSSL, on Windows by the system.
// The checksums that a hub states: SHA-256 of a file, or SHA-1 of what git stores for one (its size, then its bytes).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

namespace baton {

/// Members throw std::runtime_error where the system's policy forbids the algorithm.
class Digest {
 public:
  enum class Algorithm { sha256, sha1 };
  explicit Digest(Algorithm algorithm);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(std::span<const std::byte> bytes);
  /// Once, at the end.
  std::vector<unsigned char> result();

 private:
  struct Computation;
  std::unique_ptr<Computation> computation_;
};

struct Checksum {
  enum class Kind { none, sha256, git_sha1 };
  Kind kind = Kind::none;
  std::string hex;

  /// "sha256:...", "git-sha1:..."; empty for none.
  std::string text() const;
};

/// The kind that so many hexadecimal digits have, 64 or 40; none for any other text.
Checksum checksum_of(const std::string& hex);

/// The checksum of a file, in hexadecimal digits. Empty when stopped. Throws std::filesystem::filesystem_error when it
/// cannot be read.
std::string checksum_of_file(const std::filesystem::path& file, Checksum::Kind kind, const std::stop_token& stop);

/// The checksum of bytes that are added in pieces.
class ChecksumStream {
 public:
  /// `bytes`: size of the whole file, which git_sha1 begins with.
  ChecksumStream(Checksum::Kind kind, std::int64_t bytes);

  void add(std::span<const std::byte> bytes);
  /// Once, at the end. Empty for none.
  std::string hex();

 private:
  std::unique_ptr<Digest> digest_;  // null: none
};

}  // namespace baton
