// SPDX-License-Identifier: Apache-2.0
// The instruction sets that the kernels are compiled for; include before any Highway header. One binary holds all of
// them and selects one at run time. Without fused multiply-add (the plain baseline) results are still batch-invariant,
// but their bits differ from those of the other targets.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
