// SPDX-License-Identifier: Apache-2.0
#include "engine/model/fingerprint.h"

#include <cstdint>

#include "engine/base/hash.h"

namespace baton {

std::string fingerprint_of(std::string_view settings, std::span<const FingerprintPart> parts) {
  constexpr std::size_t kPages = 64, kPageBytes = 4096;
  StreamHash hash;
  const auto add_sized = [&](const void* data, std::uint64_t bytes) {
    hash.add(&bytes, sizeof bytes);  // so that no two lists of parts give the same stream
    hash.add(data, bytes);
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
      hash.add(data.data() + last / (kPages - 1) * page + last % (kPages - 1) * page / (kPages - 1), kPageBytes);
  }
  return hash.hex();
}

}  // namespace baton
