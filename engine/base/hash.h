// SPDX-License-Identifier: Apache-2.0
// The hashes of the project. Fingerprints, files and seeds hold their values, so none of them may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace baton {

/// Returns the 64-bit XXH3 hash.
std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed = 0);

/// The 128-bit XXH3 hash of bytes that are added in pieces; the sizes of the pieces do not change the result.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(const StreamHash&) = delete;
  StreamHash& operator=(const StreamHash&) = delete;

  void add(const void* data, std::size_t bytes);
  /// Returns the hash of all bytes so far as 32 hexadecimal digits.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

inline constexpr std::uint64_t kFnvStart = 0xcbf29ce484222325u;

/// Returns the hash after one step of FNV-1a with a byte or a whole word.
constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 0x100000001b3u; }

}  // namespace baton
