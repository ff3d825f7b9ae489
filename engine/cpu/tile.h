// SPDX-License-Identifier: Apache-2.0
// Sizes that the product kernel (tile-inl.h) and those who prepare its operands share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

/// Floats between rows of the left operand; so also the greatest depth of one call.
inline constexpr std::ptrdiff_t kTileStride = 256;

}  // namespace baton::cpu
