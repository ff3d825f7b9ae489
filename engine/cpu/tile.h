// SPDX-License-Identifier: Apache-2.0
// Sizes that the product kernels (tile-inl.h, pairs-inl.h) share with the code that prepares its operands.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

/// The number of floats between rows of the left operand, and so the maximum depth of one call.
inline constexpr std::ptrdiff_t kTileStride = 256;

/// The number of words, each a pair of bf16, between rows of the left operand in pairs.
inline constexpr std::ptrdiff_t kPairStride = 256;

}  // namespace baton::cpu
