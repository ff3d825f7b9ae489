// SPDX-License-Identifier: Apache-2.0
// A block of quantised weights taken apart, from which backends make the layouts of their own kernels.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/tensor/block_types.h"

namespace baton {

/// Only the first format_of(type).values codes are set, and of the scales those that the format has (code_format.h).
struct OpenBlock {
  std::uint8_t codes[256];  // one for each value, in their order; Q8_0: the bytes of signed quants
  std::uint16_t factor;     // f16: the scale, or the factor of integer scales
  std::uint16_t minimum;    // f16: the minimum, or the factor of integer minimums, which are subtracted
  std::uint8_t scales[16];  // of groups, in their order; Q6_K: the bytes of signed scales
  std::uint8_t minimums[8];
};

/// `type` has codes (code_format.h); `block` holds format_of(type).bytes bytes, at any address.
void open_block(OpenBlock& out, const std::byte* block, BlockType type);

}  // namespace baton
