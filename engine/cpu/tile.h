// SPDX-License-Identifier: Apache-2.0
// Sizes that the product kernel (tile-inl.h) shares with the code that prepares its operands.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

/// The number of floats between rows of the left operand, and so the maximum depth of one call.
inline constexpr std::ptrdiff_t kTileStride = 256;

}  // namespace baton::cpu
