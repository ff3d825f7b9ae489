// SPDX-License-Identifier: Apache-2.0
// Which instructions multiply bytes (dot-inl.h) and pairs of bf16 (pairs-inl.h).
#pragma once

#include <cstdint>

namespace baton::cpu {

enum class Dot : std::uint8_t { pairs, quads };

/// Which dot product instructions the processor has.
struct DotInstructions {
  bool avx512_vnni = false;
  bool avx_vnni = false;
  bool neon_sdot = false;
  bool avx512_bf16 = false;  // of bf16, in pairs
};
DotInstructions dot_instructions();

}  // namespace baton::cpu
