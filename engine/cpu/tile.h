// Sizes that the product kernel (tile-inl.h) and those who prepare its operands share.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cpu {

/// Floats between rows of the left operand; so also the greatest depth of one call.
inline constexpr std::ptrdiff_t kTileStride = 256;

/// At most this many rows are multiplied straight from stored bf16; with more it pays to widen a panel first.
inline constexpr std::int64_t kFewRows = 12;

}  // namespace baton::cpu
