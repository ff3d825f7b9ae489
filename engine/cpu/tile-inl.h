// SPDX-License-Identifier: Apache-2.0
// The only product kernel of the backend: C[rows, columns] += A[rows, depth] * panels. Each element is one fma chain
// over depth in ascending order that continues from the value in C. Products with weights, scores and weighted values
// all use it, so their bits do not depend on the number of rows or on the instruction set.
//
// Included once per target by files that use Highway's foreach_target.
#if defined(BATON_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATON_CPU_TILE_INL_H_
#undef BATON_CPU_TILE_INL_H_
#else
#define BATON_CPU_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "engine/cpu/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;
using Words = hn::CappedTag<std::uint32_t, 16>;
using FloatVec = hn::Vec<Floats>;

inline constexpr std::size_t kWidth = hn::MaxLanes(Floats());

// A unit is one vector of words of a panel row, two vectors of floats: columns [w, w + kWidth) and, 16 further, the
// same again. With 16 lanes a panel is one unit, with 8 lanes two.
inline constexpr std::size_t kUnitsPerPanel = 16 / kWidth;

// Sums kept in registers: enough to hide the latency of fma, few enough not to spill.
inline constexpr std::size_t kSums = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM ? 24 : 12;
inline constexpr std::size_t kTileRows = kSums / 2;
constexpr std::size_t units_for(std::size_t rows) {
  return std::clamp<std::size_t>(std::bit_floor(kSums / (2 * rows)), 1, 4);
}

// Stored panels are prefetched into the L2 cache this many rows ahead: the hardware's prefetcher does not keep up with
// a single stream (7 rows of x and more). With 64 rows ahead, a step of 9 to 12 rows takes 10 % longer.
inline constexpr std::int64_t kPrefetchRows = 192;

/// Words [w, w + kWidth) of one row of a panel, widened.
HWY_INLINE void load_unit(const float* row, std::size_t w, FloatVec& low, FloatVec& high) {
  const Floats f;
  low = hn::LoadU(f, row + w);
  high = hn::LoadU(f, row + 16 + w);
}
HWY_INLINE void load_unit(const std::uint16_t* row, std::size_t w, FloatVec& low, FloatVec& high) {
  const Floats f;
  const Words u;
  const auto words = hn::LoadU(u, reinterpret_cast<const std::uint32_t*>(row) + w);
  low = hn::BitCast(f, hn::ShiftLeft<16>(words));
  high = hn::BitCast(f, hn::And(words, hn::Set(u, 0xffff0000u)));
}

/// c[kRows, ...] += a[kRows, depth] * kUnits units from `first` on. `a` has kTileStride floats between rows.
template <std::size_t kRows, std::size_t kUnits, class Element>
HWY_NOINLINE void multiply_units(float* HWY_RESTRICT c, std::ptrdiff_t c_stride, const float* HWY_RESTRICT a,
                                 const Element* HWY_RESTRICT panels, std::ptrdiff_t panel_stride, std::size_t first,
                                 std::int64_t depth) {
  const Floats f;
  const Element* panel[kUnits];
  std::size_t word[kUnits];
  float* column[kUnits];
  HWY_UNROLL(16)
  for (std::size_t u = 0; u < kUnits; ++u) {
    const std::size_t index = (first + u) / kUnitsPerPanel;
    word[u] = (first + u) % kUnitsPerPanel * kWidth;
    panel[u] = panels + static_cast<std::ptrdiff_t>(index) * panel_stride;
    column[u] = c + index * kPanel + word[u];
  }
  FloatVec low[kRows][kUnits];
  FloatVec high[kRows][kUnits];
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (std::size_t u = 0; u < kUnits; ++u) {
      low[r][u] = hn::LoadU(f, column[u] + static_cast<std::ptrdiff_t>(r) * c_stride);
      high[r][u] = hn::LoadU(f, column[u] + static_cast<std::ptrdiff_t>(r) * c_stride + 16);
    }
  }
  for (std::int64_t d = 0; d < depth; ++d) {
    FloatVec b_low[kUnits];
    FloatVec b_high[kUnits];
    HWY_UNROLL(16)
    for (std::size_t u = 0; u < kUnits; ++u) {
      if constexpr (sizeof(Element) == 2) __builtin_prefetch(panel[u] + kPrefetchRows * kPanel, 0, 2);
      load_unit(panel[u], word[u], b_low[u], b_high[u]);
      panel[u] += kPanel;
    }
    HWY_UNROLL(16)
    for (std::size_t r = 0; r < kRows; ++r) {
      const FloatVec x = hn::Set(f, a[static_cast<std::ptrdiff_t>(r) * kTileStride + d]);
      HWY_UNROLL(16)
      for (std::size_t u = 0; u < kUnits; ++u) {
        low[r][u] = hn::MulAdd(x, b_low[u], low[r][u]);
        high[r][u] = hn::MulAdd(x, b_high[u], high[r][u]);
      }
    }
  }
  HWY_UNROLL(16)
  for (std::size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (std::size_t u = 0; u < kUnits; ++u) {
      hn::StoreU(low[r][u], f, column[u] + static_cast<std::ptrdiff_t>(r) * c_stride);
      hn::StoreU(high[r][u], f, column[u] + static_cast<std::ptrdiff_t>(r) * c_stride + 16);
    }
  }
}

template <std::size_t kRows, class Element>
void multiply_rows(float* c, std::ptrdiff_t c_stride, const float* a, const Element* panels,
                   std::ptrdiff_t panel_stride, std::int64_t panel_count, std::int64_t depth) {
  constexpr std::size_t kUnits = units_for(kRows);
  const std::size_t units = static_cast<std::size_t>(panel_count) * kUnitsPerPanel;
  std::size_t u = 0;
  for (; u + kUnits <= units; u += kUnits) {
    multiply_units<kRows, kUnits>(c, c_stride, a, panels, panel_stride, u, depth);
  }
  if constexpr (kUnits > 2) {  // the two panels of a block of keys, for few queries
    for (; u + 2 <= units; u += 2) multiply_units<kRows, 2>(c, c_stride, a, panels, panel_stride, u, depth);
  }
  for (; u < units; ++u) multiply_units<kRows, 1>(c, c_stride, a, panels, panel_stride, u, depth);
}

template <class Element>
using MultiplyRows = void (*)(float*, std::ptrdiff_t, const float*, const Element*, std::ptrdiff_t, std::int64_t,
                              std::int64_t);

template <class Element, std::size_t... kIndex>
HWY_INLINE MultiplyRows<Element> multiply_for(std::size_t rows, std::index_sequence<kIndex...>) {
  static constexpr MultiplyRows<Element> kTable[] = {&multiply_rows<kIndex + 1, Element>...};
  return kTable[rows - 1];
}

/// c[rows, 32 * panels.count] += a[rows, depth] * panels. `a` has kTileStride floats between rows. c must be
/// initialised, because the chains start from it.
template <class Element>
void multiply_tile(float* c, std::ptrdiff_t c_stride, const float* a, std::int64_t rows, PanelLine<Element> panels,
                   std::int64_t depth) {
  const auto total = static_cast<std::size_t>(rows);
  const std::size_t groups = (total + kTileRows - 1) / kTileRows;
  for (std::size_t g = 0; g < groups;
       ++g) {  // groups of nearly equal size: a small last group would not hide the latency
    const std::size_t begin = total * g / groups;
    const std::size_t count = total * (g + 1) / groups - begin;
    multiply_for<Element>(count, std::make_index_sequence<kTileRows>())(
        c + static_cast<std::ptrdiff_t>(begin) * c_stride, c_stride, a + begin * kTileStride, panels.first,
        panels.stride, panels.count, depth);
  }
}

/// out[depth][32] f32 = one bf16 panel, widened.
HWY_INLINE void widen_panel(float* HWY_RESTRICT out, const std::uint16_t* HWY_RESTRICT panel, std::int64_t depth) {
  const Floats f;
  for (std::int64_t d = 0; d < depth; ++d) {
    for (std::size_t w = 0; w < 16; w += kWidth) {
      FloatVec low, high;
      load_unit(panel + d * kPanel, w, low, high);
      hn::StoreU(low, f, out + d * kPanel + w);
      hn::StoreU(high, f, out + d * kPanel + 16 + w);
    }
  }
}

// 16 virtual lanes, whatever the vector width. Sums over a row keep one partial sum per virtual lane and fold them in a
// fixed order, so that the result does not depend on the instruction set.
inline constexpr std::size_t kLanes = 16;

/// Returns the sum of 16 floats: halves are added, then quarters, and so on.
HWY_INLINE float fold_lanes(const float* lanes) {
  float sum[kLanes / 2];
  for (std::size_t i = 0; i < 8; ++i) sum[i] = lanes[i] + lanes[i + 8];
  for (std::size_t i = 0; i < 4; ++i) sum[i] = sum[i] + sum[i + 4];
  return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/// Applies fn(tag, i) to elements [i, i + lanes of tag) until all n are done: whole vectors, then single elements with
/// the same instructions. For work in which an element does not depend on its neighbours.
template <class Fn>
HWY_INLINE void for_each_vector(std::int64_t n, const Fn& fn) {
  const hn::CappedTag<float, kLanes> wide;
  const hn::CappedTag<float, 1> single;
  const auto width = static_cast<std::int64_t>(hn::Lanes(wide));
  std::int64_t i = 0;
  for (; i + width <= n; i += width) fn(wide, i);
  for (; i < n; ++i) fn(single, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#endif
