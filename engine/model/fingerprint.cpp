// SPDX-License-Identifier: Apache-2.0
#include "engine/model/fingerprint.h"

#include <cstddef>
#include <vector>

#include "engine/base/hash.h"

namespace baton {

std::string fingerprint_of(std::string_view settings, std::span<const FingerprintPart> parts) {
  constexpr std::uint64_t kPages = 64, kPageBytes = 4096;
  StreamHash hash;
  const auto add_sized = [&](const void* data, std::uint64_t bytes) {
    hash.add(&bytes, sizeof bytes);  // so that no two lists of parts give the same stream
    hash.add(data, bytes);
  };
  std::vector<std::byte> bytes;
  const auto read = [&](const InputFile& file, std::uint64_t begin, std::uint64_t size) {
    bytes.resize(static_cast<std::size_t>(size));
    file.read(begin, bytes);
  };

  add_sized(settings.data(), settings.size());
  for (const FingerprintPart& part : parts) {
    read(part.file, 0, part.header);
    add_sized(bytes.data(), bytes.size());
    const std::uint64_t data = part.file.size() - part.header;
    if (data <= kPages * kPageBytes) {
      read(part.file, part.header, data);
      add_sized(bytes.data(), bytes.size());
      continue;
    }
    const std::uint64_t last = data - kPageBytes;
    for (std::uint64_t page = 0; page < kPages; ++page) {  // divided first: the product could leave 64 bits
      read(part.file, part.header + last / (kPages - 1) * page + last % (kPages - 1) * page / (kPages - 1), kPageBytes);
      hash.add(bytes.data(), bytes.size());
    }
  }
  return hash.hex();
}

}  // namespace baton
