// SPDX-License-Identifier: Apache-2.0
// SeededHash: the hash for tables whose keys come from a file. With a fixed hash a file could choose keys that all meet
// in one place, so that every look-up reads all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

#include "engine/base/hash.h"
#include "engine/base/random.h"

namespace baton {

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
