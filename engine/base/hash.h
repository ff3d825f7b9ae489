// SPDX-License-Identifier: Apache-2.0
// The hashes of the project. Fingerprints, files and seeds hold their values, so none of them may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "engine/base/random.h"

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

// SeededHash: the hash for tables whose keys come from a file. With a fixed hash a file could choose keys that all meet
// in one place, so that every look-up reads all of them.

/// Each table has a seed of its own, which is drawn when the table is made. Nothing but the order of slots may depend
/// on it.
class SeededHash {
 public:
  SeededHash() {
    std::random_device random;
    seed_ = static_cast<std::uint64_t>(random()) << 32 | random();
  }

  std::size_t operator()(std::string_view text) const { return hash_bytes(text.data(), text.size(), seed_); }
  std::size_t operator()(std::uint64_t key) const noexcept { return mixed_bits(key ^ seed_); }
  std::size_t operator()(char32_t key) const noexcept { return (*this)(std::uint64_t{key}); }
  std::size_t operator()(std::int32_t key) const noexcept {
    return (*this)(std::uint64_t{static_cast<std::uint32_t>(key)});
  }

 private:
  std::uint64_t seed_;
};

}  // namespace baton
