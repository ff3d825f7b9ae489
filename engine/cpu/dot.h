// SPDX-License-Identifier: Apache-2.0
// Which instructions multiply bytes (dot-inl.h, quantized_amx-inl.h) and pairs of bf16 (pairs-inl.h).
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
  bool amx_int8 = false;     // of tiles of bytes, and the system saves their registers
};
/// Asks Linux for the use of AMX in this process, where the processor has it. Alternate signal stacks must have
/// sysconf(_SC_MINSIGSTKSZ) bytes from then on; where a thread has a smaller one already, Linux refuses, and AMX is not
/// used.
DotInstructions dot_instructions();

}  // namespace baton::cpu
