// SPDX-License-Identifier: Apache-2.0
#include "engine/model/fingerprint.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstdint>
#include <memory>

namespace baton {

std::string fingerprint_of(std::string_view settings, std::span<const FingerprintPart> parts) {
  constexpr std::size_t kPages = 64, kPageBytes = 4096;
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), XXH3_freeState);
  XXH3_128bits_reset(state.get());
  const auto add = [&](const void* data, std::size_t bytes) { XXH3_128bits_update(state.get(), data, bytes); };
  const auto add_sized = [&](const void* data, std::uint64_t bytes) {
    add(&bytes, sizeof bytes);  // so that no two lists of parts give the same stream
    add(data, bytes);
  };

  add_sized(settings.data(), settings.size());
  for (const FingerprintPart& part : parts) {
    add_sized(part.header.data(), part.header.size());
    const std::span<const std::byte> data = part.data;
    if (data.size() <= kPages * kPageBytes) {
      add_sized(data.data(), data.size());
      continue;
    }
    const std::size_t last = data.size() - kPageBytes;
    for (std::size_t page = 0; page < kPages; ++page)  // divided first: the product could leave 64 bits
      add(data.data() + last / (kPages - 1) * page + last % (kPages - 1) * page / (kPages - 1), kPageBytes);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace baton
