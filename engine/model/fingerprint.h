// SPDX-License-Identifier: Apache-2.0
// What tells two models apart without reading all of their weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/input_file.h"

namespace baton {

struct FingerprintPart {
  const InputFile& file;
  std::uint64_t header = 0;  // bytes of the file that are counted as a whole; what follows is the data
};

/// XXH3-128 over the settings, every header, and 64 evenly spaced pages of every data part, as hex. Throws ModelError
/// where a file cannot be read.
std::string fingerprint_of(std::string_view settings, std::span<const FingerprintPart> parts);

}  // namespace baton
