// SPDX-License-Identifier: Apache-2.0
// The product kernel of bf16 in pairs: C[rows, columns] += A[rows, depth] * panels, for processors whose instruction
// adds two products of bf16 to each f32 lane (VDPBF16PS). It is two fused multiply-adds in turn, that of the high
// halves first, rounded to nearest, with denormals as zeros. With even elements in the high halves and without
// denormals (kSmallestOperand) an element of C is the chain of tile-inl.h, bit for bit:
// docs/decisions/numerics.md.
//
// Included once per target by files that use Highway's foreach_target.
#if defined(BATON_CPU_BF16_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_BF16_MATMUL_INL_H_
#undef BATON_CPU_BF16_MATMUL_INL_H_
#else
#define BATON_CPU_BF16_MATMUL_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "engine/cpu/dot.h"
#include "engine/cpu/panel.h"
#include "engine/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Targets of later releases of Highway are better ones: they have all of the instructions.
#undef BATON_PAIRS_AVX512
#define BATON_PAIRS_AVX512 (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3)

/// Can this target multiply pairs? The compiler need not know of the instruction.
HWY_INLINE bool adds_pairs(DotInstructions has) { return BATON_PAIRS_AVX512 && has.avx512_bf16; }

#if BATON_PAIRS_AVX512

using PairTag = hn::FixedTag<std::uint32_t, 16>;
using SumTag = hn::FixedTag<float, 16>;

/// acc + a * b, twice.
HWY_INLINE hn::Vec<SumTag> add_pairs(hn::Vec<SumTag> acc, hn::Vec<PairTag> a, hn::Vec<PairTag> b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc.raw) : "v"(a.raw), "v"(b.raw));
  return acc;
}

// A panel is two vectors. Sums kept in registers: enough to hide the instruction's latency of 6 cycles at 2 of them per
// cycle, few enough not to spill.
inline constexpr std::size_t kPairSums = 24;
inline constexpr std::size_t kPairTileRows = kPairSums / 2;
constexpr std::size_t pair_panels_for(std::size_t rows) {
  return std::clamp<std::size_t>(std::bit_floor(kPairSums / (2 * rows)), 1, 4);
}
inline constexpr std::int64_t kPairPrefetch = 96;  // rows of pairs ahead, as kPrefetchRows of tile-inl.h

/// c[kRows, 32 * kPanels] += a[kRows, pairs] * kPanels panels. `a` has kPairStride words between rows.
template <std::size_t kRows, std::size_t kPanels>
HWY_NOINLINE void multiply_pair_panels(float* HWY_RESTRICT c, std::ptrdiff_t c_stride,
                                       const std::uint32_t* HWY_RESTRICT a, const std::uint32_t* HWY_RESTRICT panels,
                                       std::ptrdiff_t panel_stride, std::int64_t pairs) {
  const SumTag f;
  const PairTag u;
  constexpr std::size_t kVectors = 2 * kPanels;
  const std::uint32_t* panel[kPanels];
  HWY_UNROLL(4)
  for (std::size_t p = 0; p < kPanels; ++p) panel[p] = panels + static_cast<std::ptrdiff_t>(p) * panel_stride;
  hn::Vec<SumTag> sum[kRows][kVectors];
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (std::size_t v = 0; v < kVectors; ++v)
      sum[r][v] = hn::LoadU(f, c + static_cast<std::ptrdiff_t>(r) * c_stride + 16 * v);
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    hn::Vec<PairTag> w[kVectors];
    HWY_UNROLL(4)
    for (std::size_t p = 0; p < kPanels; ++p) {
      if constexpr (kRows < kPairTileRows) {
        __builtin_prefetch(panel[p] + kPairPrefetch * kPanel, 0, 2);
        __builtin_prefetch(panel[p] + kPairPrefetch * kPanel + 16, 0, 2);
      }
      w[2 * p] = hn::LoadU(u, panel[p]);
      w[2 * p + 1] = hn::LoadU(u, panel[p] + 16);
      panel[p] += kPanel;
    }
    HWY_UNROLL(16)
    for (std::size_t r = 0; r < kRows; ++r) {
      const auto x = hn::Set(u, a[static_cast<std::ptrdiff_t>(r) * kPairStride + i]);
      HWY_UNROLL(16)
      for (std::size_t v = 0; v < kVectors; ++v) sum[r][v] = add_pairs(sum[r][v], w[v], x);
    }
  }
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (std::size_t v = 0; v < kVectors; ++v)
      hn::StoreU(sum[r][v], f, c + static_cast<std::ptrdiff_t>(r) * c_stride + 16 * v);
  }
}

template <std::size_t kRows>
void multiply_pair_rows(float* c, std::ptrdiff_t c_stride, const std::uint32_t* a, const std::uint32_t* panels,
                        std::ptrdiff_t panel_stride, std::int64_t panel_count, std::int64_t pairs) {
  constexpr auto kPanels = static_cast<std::int64_t>(pair_panels_for(kRows));
  std::int64_t p = 0;
  for (; p + kPanels <= panel_count; p += kPanels) {
    multiply_pair_panels<kRows, kPanels>(c + p * kPanel, c_stride, a, panels + p * panel_stride, panel_stride, pairs);
  }
  for (; p < panel_count; ++p) {
    multiply_pair_panels<kRows, 1>(c + p * kPanel, c_stride, a, panels + p * panel_stride, panel_stride, pairs);
  }
}

using MultiplyPairRows = void (*)(float*, std::ptrdiff_t, const std::uint32_t*, const std::uint32_t*, std::ptrdiff_t,
                                  std::int64_t, std::int64_t);

template <std::size_t... kIndex>
HWY_INLINE MultiplyPairRows multiply_pairs_for(std::size_t rows, std::index_sequence<kIndex...>) {
  static constexpr std::array<MultiplyPairRows, sizeof...(kIndex)> kTable = {&multiply_pair_rows<kIndex + 1>...};
  return kTable[rows - 1];
}

/// c[rows, 32 * panel_count] += a[rows, pairs] * panels. `a` has kPairStride words between rows; panel p begins
/// `panel_stride` words after panel p - 1. c must be initialised, because the chains start from it.
inline void multiply_pair_tile(float* c, std::ptrdiff_t c_stride, const std::uint32_t* a, std::int64_t rows,
                               const std::uint32_t* panels, std::ptrdiff_t panel_stride, std::int64_t panel_count,
                               std::int64_t pairs) {
  const auto total = static_cast<std::size_t>(rows);
  const std::size_t groups = (total + kPairTileRows - 1) / kPairTileRows;
  for (std::size_t g = 0; g < groups; ++g) {  // of nearly equal size
    const std::size_t begin = total * g / groups;
    const std::size_t count = total * (g + 1) / groups - begin;
    multiply_pairs_for(count, std::make_index_sequence<kPairTileRows>())(
        c + static_cast<std::ptrdiff_t>(begin) * c_stride, c_stride, a + begin * kPairStride, panels, panel_stride,
        panel_count, pairs);
  }
}

#else

inline constexpr std::size_t kPairTileRows = 1;
constexpr std::size_t pair_panels_for(std::size_t /*rows*/) { return 1; }
inline void multiply_pair_tile(float* /*c*/, std::ptrdiff_t /*c_stride*/, const std::uint32_t* /*a*/,
                               std::int64_t /*rows*/, const std::uint32_t* /*panels*/, std::ptrdiff_t /*panel_stride*/,
                               std::int64_t /*panel_count*/, std::int64_t /*pairs*/) {
  throw std::logic_error("a matrix in pairs on a processor without products of pairs");
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
