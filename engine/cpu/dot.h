// SPDX-License-Identifier: Apache-2.0
// Which instructions multiply bytes (dot-inl.h).
#pragma once

#include <cstdint>

namespace baton::cpu {

enum class Dot : std::uint8_t { pairs, quads };

/// What the processor has: x86 with dot product instructions in the encoding of its widest vectors.
struct DotInstructions {
  bool avx512_vnni = false;
  bool avx_vnni = false;
};
DotInstructions dot_instructions();

}  // namespace baton::cpu
