// SPDX-License-Identifier: Apache-2.0
// Rows are rounded first, once for all tasks. Where the processor multiplies pairs of bf16, the loop orders of
// matmul.cpp follow, without the widening of panels; elsewhere the product of f32 does.
// docs/decisions/numerics.md
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/matmul_bf16.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "engine/cpu/matmul.h"

#ifndef BATON_CPU_MATMUL_BF16_SHARED_
#define BATON_CPU_MATMUL_BF16_SHARED_
namespace baton::cpu {

inline constexpr std::int64_t kPairFewRows = 36;
inline constexpr std::int64_t kPairRowBlock = 240;  // rows of x kept in L2: 240 KiB per depth block
inline constexpr std::int64_t kPairPanelBlock = 8;  // panels that share one copy of a row block
inline constexpr std::int64_t kPairDepth = kPairStride;

struct PairTask : ProductTask {
  TensorView out;
  const std::uint32_t* x;  // [C / 512][T][256] pairs
  std::int64_t x_rows;     // T
  const PackedMatrix& w;
  std::span<const float> bias;

  std::int64_t columns(std::int64_t p) const { return std::min(kPanel, w.rows - p * kPanel); }
};

/// Initialises the chains: c[rows, 32] = bias of panel p, or zero.
inline void start_pair_chains(float* c, std::ptrdiff_t stride, std::int64_t rows, const PairTask& task,
                              std::int64_t p) {
  float start[kPanel] = {};
  for (std::int64_t n = 0; n < task.columns(p) && !task.bias.empty(); ++n) {
    const float bias = task.bias[p * kPanel + n];
    start[n] = std::abs(bias) < kSmallestOperand ? 0.0f : bias;
  }
  for (std::int64_t r = 0; r < rows; ++r) std::copy_n(start, kPanel, c + r * stride);
}

}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The product kernel of bf16 in pairs: C[rows, columns] += A[rows, depth] * panels, for processors whose instruction
// adds two products of bf16 to each f32 lane (VDPBF16PS). It is two fused multiply-adds in turn, that of the high
// halves first, rounded to nearest, with denormals as zeros. With even elements in the high halves and without
// denormals (kSmallestOperand) an element of C is the chain of tile-inl.h, bit for bit:
// docs/decisions/numerics.md.
//
// Included once per target by files that use Highway's foreach_target.

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

/// c[rows, 32 * panels.count] += a[rows, pairs] * panels. `a` has kPairStride words between rows. c must be
/// initialised, because the chains start from it.
inline void multiply_pair_tile(float* c, std::ptrdiff_t c_stride, const std::uint32_t* a, std::int64_t rows,
                               PanelLine<std::uint32_t> panels, std::int64_t pairs) {
  const auto total = static_cast<std::size_t>(rows);
  const std::size_t groups = (total + kPairTileRows - 1) / kPairTileRows;
  for (std::size_t g = 0; g < groups; ++g) {  // of nearly equal size
    const std::size_t begin = total * g / groups;
    const std::size_t count = total * (g + 1) / groups - begin;
    multiply_pairs_for(count, std::make_index_sequence<kPairTileRows>())(
        c + static_cast<std::ptrdiff_t>(begin) * c_stride, c_stride, a + begin * kPairStride, panels.first,
        panels.stride, panels.count, pairs);
  }
}

#else

inline constexpr std::size_t kPairTileRows = 1;
constexpr std::size_t pair_panels_for(std::size_t /*rows*/) { return 1; }
inline void multiply_pair_tile(float* /*c*/, std::ptrdiff_t /*c_stride*/, const std::uint32_t* /*a*/,
                               std::int64_t /*rows*/, PanelLine<std::uint32_t> /*panels*/, std::int64_t /*pairs*/) {
  throw std::logic_error("a matrix in pairs on a processor without products of pairs");
}

#endif

bool can_add_pairs(DotInstructions has) { return adds_pairs(has); }

/// The bits of an f32 rounded to bf16 and widened again; 0 where that is below kSmallestOperand.
template <class Tag>
HWY_INLINE hn::Vec<Tag> rounded_bits(Tag u, hn::Vec<Tag> bits) {
  const auto magnitude = hn::Set(u, 0x7fffffffu), upper = hn::Set(u, 0xffff0000u);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto finite = hn::And(hn::Add(hn::Add(bits, odd), hn::Set(u, 0x7fff)), upper);
  const auto nan = hn::And(hn::Or(bits, hn::Set(u, 0x00400000u)), upper);
  const auto value = hn::IfThenElse(hn::Gt(hn::And(bits, magnitude), hn::Set(u, 0x7f800000u)), nan, finite);
  const auto least = hn::Set(u, std::bit_cast<std::uint32_t>(kSmallestOperand));
  return hn::IfThenZeroElse(hn::Lt(hn::And(value, magnitude), least), value);
}

/// out[n] = x[n] rounded to bf16, in f32.
void round_values(float* out, const float* x, std::int64_t n) {
  const auto round = [&](auto u, std::int64_t i) HWY_ATTR {
    const hn::RebindToFloat<decltype(u)> f;
    hn::StoreU(hn::BitCast(f, rounded_bits(u, hn::BitCast(u, hn::LoadU(f, x + i)))), f, out + i);
  };
  const hn::CappedTag<std::uint32_t, 16> wide;
  const auto width = static_cast<std::int64_t>(hn::Lanes(wide));
  std::int64_t i = 0;
  for (; i + width <= n; i += width) round(wide, i);
  for (; i < n; ++i) round(hn::CappedTag<std::uint32_t, 1>(), i);
}

/// out[n / 2] = the pairs of x[n] rounded to bf16, even elements in the high halves; n is even.
void round_pairs(std::uint32_t* out, const float* x, std::int64_t n) {
  float values[2 * kPairStride];
  round_values(values, x, n);
  for (std::int64_t i = 0; i < n / 2; ++i)
    out[i] = std::bit_cast<std::uint32_t>(values[2 * i]) | std::bit_cast<std::uint32_t>(values[2 * i + 1]) >> 16;
}

void multiply_pairs_few(const PairTask& task) {
  const std::int64_t count = task.x_rows, pairs = pairs_of(task.w.cols);
  constexpr std::int64_t kMaxPanels = 4;
  const std::int64_t panels_at_once =
      static_cast<std::int64_t>(pair_panels_for(std::min<std::size_t>(static_cast<std::size_t>(count), kPairTileRows)));
  float c[kPairFewRows * kMaxPanels * kPanel];
  for (std::int64_t p = task.panel; p < task.panel_end; p += panels_at_once) {
    const std::int64_t panels = std::min(panels_at_once, task.panel_end - p);
    const std::int64_t stride = panels * kPanel;
    for (std::int64_t i = 0; i < panels; ++i) start_pair_chains(c + i * kPanel, stride, count, task, p + i);
    for (std::int64_t d = 0; d < pairs; d += kPairDepth) {
      multiply_pair_tile(c, stride, task.x + d * count, count,
                         PanelLine{task.w.pair_panel(p) + d * kPanel, pairs * kPanel, panels},
                         std::min(kPairDepth, pairs - d));
    }
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t columns = (panels - 1) * kPanel + task.columns(p + panels - 1);
      std::copy_n(c + r * stride, columns, task.out.f32(r) + p * kPanel);
    }
  }
}

void multiply_pairs_many(const PairTask& task, float* scratch) {
  const std::int64_t count = task.row_end - task.row, pairs = pairs_of(task.w.cols);
  float* c = scratch;  // [panels][count, 32]
  for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
    start_pair_chains(c + (p - task.panel) * count * kPanel, kPanel, count, task, p);
  }
  for (std::int64_t d = 0; d < pairs; d += kPairDepth) {
    const std::uint32_t* rows = task.x + d * task.x_rows + task.row * kPairStride;
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      multiply_pair_tile(c + (p - task.panel) * count * kPanel, kPanel, rows, count,
                         PanelLine{task.w.pair_panel(p) + d * kPanel, 0, 1}, std::min(kPairDepth, pairs - d));
    }
  }
  for (std::int64_t r = 0; r < count; ++r) {
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      const float* row = c + ((p - task.panel) * count + r) * kPanel;
      std::copy_n(row, task.columns(p), task.out.f32(task.row + r) + p * kPanel);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(can_add_pairs);
HWY_EXPORT(round_values);
HWY_EXPORT(round_pairs);
HWY_EXPORT(multiply_pairs_few);
HWY_EXPORT(multiply_pairs_many);

static_assert(kPairRowBlock * kPairPanelBlock * kPanel <= kThreadFloats);

template <class Fn>
void for_rows(ThreadPool& pool, const ConstTensorView& x, const Fn& fn) {
  const std::int64_t tasks = std::min<std::int64_t>(x.rows, 4 * pool.size());
  pool.run(tasks, x.rows * x.cols / 4, [&](std::int64_t task, int) {
    for (std::int64_t row = x.rows * task / tasks; row < x.rows * (task + 1) / tasks; ++row) fn(row);
  });
}

/// Returns x rounded, as pairs by depth blocks [C / 512][T][256].
const std::uint32_t* pairs_of_rows(ThreadPool& pool, Scratch& scratch, const ConstTensorView& x) {
  const std::int64_t pairs = pairs_of(x.cols), blocks = (pairs + kPairStride - 1) / kPairStride;
  auto* out = reinterpret_cast<std::uint32_t*>(scratch.shared(blocks * kPairStride * x.rows));
  for_rows(pool, x, [&](std::int64_t row) {
    for (std::int64_t d = 0; d < x.cols; d += 2 * kPairStride) {
      const std::int64_t count = std::min<std::int64_t>(2 * kPairStride, x.cols - d);
      std::uint32_t* to = out + d / 2 * x.rows + row * kPairStride;
      HWY_DYNAMIC_DISPATCH(round_pairs)(to, x.f32(row) + d, count / 2 * 2);
      if (count % 2 == 0) continue;
      const float last[2] = {x.f32(row)[x.cols - 1], 0.0f};
      HWY_DYNAMIC_DISPATCH(round_pairs)(to + count / 2, last, 2);
    }
  });
  return out;
}

/// The product of f32 over rounded rows.
void matmul_rounded(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
                    std::span<const float> bias) {
  const bool tiny =
      std::any_of(bias.begin(), bias.end(), [](float b) { return b != 0.0f && std::abs(b) < kSmallestOperand; });
  const std::int64_t count = x.rows * x.cols;
  float* rounded = scratch.operand(count + (tiny ? w.rows : 0));
  for_rows(pool, x, [&](std::int64_t row) {
    HWY_DYNAMIC_DISPATCH(round_values)(rounded + row * x.cols, x.f32(row), x.cols);
  });
  if (tiny) {
    std::transform(bias.begin(), bias.end(), rounded + count,
                   [](float b) { return std::abs(b) < kSmallestOperand ? 0.0f : b; });
    bias = {rounded + count, bias.size()};
  }
  matmul(pool, scratch, out, view_of(static_cast<const float*>(rounded), x.rows, x.cols), w, bias);
}

}  // namespace

bool multiplies_pairs(DotInstructions has) { return HWY_DYNAMIC_DISPATCH(can_add_pairs)(has); }

void matmul_bf16(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
                 std::span<const float> bias) {
  if (x.rows == 0) return;
  if (!w.in_pairs) return matmul_rounded(pool, scratch, out, x, w, bias);
  const std::int64_t panels = panels_of(w.rows);
  const std::int64_t work = std::max(x.rows * w.rows * w.cols / 32, static_cast<std::int64_t>(w.bytes / 4));
  const bool few = x.rows <= kPairFewRows;
  const ProductTasks tasks = few ? ProductTasks::of_few(x.rows, panels, pool.size(), 4)
                                 : ProductTasks::of_many(x.rows, panels, pool.size(), {kPairRowBlock, kPairPanelBlock});
  const std::uint32_t* pairs = pairs_of_rows(pool, scratch, x);

  pool.run(tasks.count(), work, [&](std::int64_t index, int thread) {
    const PairTask task{tasks[index], out, pairs, x.rows, w, bias};
    if (few) {
      HWY_DYNAMIC_DISPATCH(multiply_pairs_few)(task);
    } else {
      HWY_DYNAMIC_DISPATCH(multiply_pairs_many)(task, scratch.of_thread(thread));
    }
  });
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
