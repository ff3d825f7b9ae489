// SPDX-License-Identifier: Apache-2.0
#include "engine/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace baton {

std::uint64_t hash_bytes(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

struct StreamHash::State {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> xxh3{XXH3_createState(), XXH3_freeState};
};

StreamHash::StreamHash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(state_->xxh3.get()); }
StreamHash::~StreamHash() = default;

void StreamHash::add(const void* data, std::size_t bytes) { XXH3_128bits_update(state_->xxh3.get(), data, bytes); }

std::string StreamHash::hex() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace baton
