// SPDX-License-Identifier: Apache-2.0
// Digest: SHA-256 or SHA-1 of bytes that come in pieces, by OpenSSL, on Windows by the system.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
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

}  // namespace baton
