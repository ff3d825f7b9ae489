// SPDX-License-Identifier: Apache-2.0
// What tells two models apart without reading all of their weights.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace baton {

struct FingerprintPart {
  std::span<const std::byte> header;  // counted as a whole
  std::span<const std::byte> data;
};

/// XXH3-128 over the settings, every header, and 64 evenly spaced pages of every data part, as hex.
std::string fingerprint_of(std::string_view settings, std::span<const FingerprintPart> parts);

}  // namespace baton
