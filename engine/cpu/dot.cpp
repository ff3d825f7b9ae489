// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/matmul.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace baton::cpu {
namespace {

#if defined(__x86_64__)
/// Linux gives a process the tile registers where it asks for them (Documentation/arch/x86/xstate.rst).
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

}  // namespace

// Highway checks that the system saves the registers; here only the instruction itself is asked for.
DotInstructions dot_instructions() {
  DotInstructions has;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    has.avx512_vnni = (c >> 11 & 1) != 0;
    has.amx_int8 = (d >> 24 & 1) != 0 && (d >> 25 & 1) != 0 && may_use_tiles();
    if (a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0) {
      has.avx_vnni = (a >> 4 & 1) != 0;
      has.avx512_bf16 = (a >> 5 & 1) != 0;
    }
  }
#elif defined(__ARM_FEATURE_DOTPROD)
  has.neon_sdot = true;
#elif defined(__aarch64__) && defined(__linux__)
  has.neon_sdot = (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#endif
  return has;
}

}  // namespace baton::cpu
