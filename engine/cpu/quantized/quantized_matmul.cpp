// SPDX-License-Identifier: Apache-2.0
// Activations are quantised once, then tasks multiply them with panels:
// few rows   the packed codes are taken apart on their way into the sums, once for each group of rows;
// many rows  the codes of a chunk are widened to bytes once for all rows of a block, and multiplied by tiles where the
//            processor has AMX.
// With activations in f32, chunks are widened to floats and go through the kernel of all other products (tile-inl.h).
#include "engine/base/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/quantized/quantized_matmul.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.
#include "engine/cpu/quantized/quantized_amx-inl.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>

#include "engine/cpu/product_tasks.h"
#include "engine/cpu/quantized/quantized_matmul.h"

#ifndef BATON_CPU_QUANTIZED_MATMUL_SHARED_
#define BATON_CPU_QUANTIZED_MATMUL_SHARED_
namespace baton::cpu {

inline constexpr std::int64_t kQuantRowBlock = 256;  // rows that share a widened chunk
inline constexpr std::int64_t kQuantPanels = 64;     // of a task
inline constexpr std::int64_t kFloatRowBlock = 240;  // the same with activations in f32
inline constexpr std::int64_t kFloatPanels = 8;      // panels that share a copy of those

struct QuantizedTask : ProductTask {
  TensorView out;
  ConstTensorView x;
  const ActivationChunk* activations;  // [C / 256][T]
  const QuantizedMatrix& w;
  std::span<const float> bias;
  DotInstructions instructions;
  bool few;  // rows: at most few_rows()
};

/// One panel of a part of w, and the outputs [first, first + columns) it holds.
struct PanelView {
  PanelView(const QuantizedMatrix& w, std::int64_t panel)
      : part(w.part_of_panel(panel)),
        data(part.data + (panel - part.panel) * part.panel_bytes),
        first(part.row + (panel - part.panel) * kPanel),
        columns(std::min(kPanel, part.row + part.rows - first)) {}

  /// Where the chains start: c[rows, 32] = bias, or zero.
  void start_chains(float* c, std::int64_t rows, std::span<const float> bias) const {
    float start[kPanel] = {};
    if (!bias.empty()) std::copy_n(bias.data() + first, columns, start);
    for (std::int64_t r = 0; r < rows; ++r) std::memcpy(c + r * kPanel, start, sizeof(start));
  }
  void store(TensorView out, const float* c, std::int64_t row, std::int64_t rows) const {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* to = out.f32(row + r) + first;
      if (columns == kPanel) {  // a length that is known is copied without a call
        std::memcpy(to, c + r * kPanel, kPanel * sizeof(float));
      } else {
        std::copy_n(c + r * kPanel, columns, to);
      }
    }
  }

  const PartPanels& part;
  const std::byte* data;
  std::int64_t first, columns;
};

/// Working memory of a task with many rows.
struct QuantizedScratch {
  std::uint8_t codes[kChunkBlocks * kWideBytes];
  WideScales scales;
  float c[kQuantRowBlock * kPanel];
};

}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

/// Rows for which codes are not widened first. With groups of eight, each of which takes the codes apart, 10 to 24 rows
/// are 4 to 10 % faster than with widening; with groups of four, a second group costs more than widening.
template <Dot kDot>
inline constexpr std::int64_t kFewRows = kPackedRows<kDot> == kQuantRows ? kQuantRows : 3 * kPackedRows<kDot>;

/// Calls fn with std::integral_constant<Dot, ...>: how this processor multiplies bytes.
template <class Fn>
HWY_INLINE void with_dot(DotInstructions has, const Fn& fn) {
  if constexpr (kHasPairs) {
    if (!adds_quads(has)) return fn(std::integral_constant<Dot, Dot::pairs>());
  }
  fn(std::integral_constant<Dot, Dot::quads>());
}

/// Blocks whose largest value is below 2^-100 are taken as zeros; values that are not finite make the scale NaN, and
/// with it all outputs of the row.
HWY_INLINE float quantize_block(std::int8_t* quants, const float* x) {
  const Floats f;
  const Words words;
  const IntTag ints;
  auto largest = hn::Zero(words);
  for (std::size_t i = 0; i < kQuantBlock; i += kWidth) {
    const auto bits = hn::And(hn::BitCast(words, hn::LoadU(f, x + i)), hn::Set(words, 0x7fffffffu));
    largest = hn::Max(largest, bits);
  }
  const std::uint32_t bits = hn::GetLane(hn::MaxOfLanes(words, largest));
  const float magnitude = std::bit_cast<float>(bits);
  if (bits >= 0x7f800000u || magnitude < 0x1p-100f) {
    std::fill_n(quants, kQuantBlock, std::int8_t{0});
    return bits >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const FloatVec inverse = hn::Set(f, 127.0f / magnitude);
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  const float shift = 0x1.8p23f;
  for (std::size_t i = 0; i < kQuantBlock; i += kWidth) {
    const FloatVec moved = hn::Add(hn::Mul(hn::LoadU(f, x + i), inverse), hn::Set(f, shift));
    const IntVec quant = hn::Sub(hn::BitCast(ints, moved), hn::Set(ints, std::bit_cast<std::int32_t>(shift)));
    const hn::Rebind<std::int8_t, IntTag> narrow;
    hn::StoreU(hn::DemoteTo(narrow, quant), narrow, quants + i);
  }
  return magnitude / 127.0f;
}

template <Dot kDot>
HWY_INLINE std::int32_t start_word(std::int32_t factor, std::int32_t even, std::int32_t odd) {
  if constexpr (kDot == Dot::quads) return -factor * (even + odd);
  const auto low = static_cast<std::uint16_t>(-factor * even), high = static_cast<std::uint16_t>(-factor * odd);
  return static_cast<std::int32_t>(low | std::uint32_t{high} << 16);
}

template <Dot kDot>
void quantize_chunk(ActivationChunk& out, const float* x, std::int64_t inputs) {
  for (std::int64_t b = 0; b < inputs / kQuantBlock; ++b) {
    std::int8_t* quants = out.quants + b * kQuantBlock;
    out.scale[b] = quantize_block(quants, x + b * kQuantBlock);
    std::int32_t even[2] = {}, odd[2] = {};  // of the pairs of each four quants, in each half of the block
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 16; i += 4) {
        even[half] += quants[half * 16 + i] + quants[half * 16 + i + 1];
        odd[half] += quants[half * 16 + i + 2] + quants[half * 16 + i + 3];
      }
    }
    out.sum[b] = out.scale[b] * static_cast<float>(even[0] + odd[0] + even[1] + odd[1]);
    out.start[b][0] = start_word<kDot>(8, even[0] + even[1], odd[0] + odd[1]);
    out.start[b][1] = start_word<kDot>(16, even[0] + even[1], odd[0] + odd[1]);
    out.start[b][2] = start_word<kDot>(32, even[0], odd[0]);
    out.start[b][3] = start_word<kDot>(32, even[1], odd[1]);
  }
}

/// Rows [row, row_end) of x as chunks [C / 256][T].
void quantize_rows(ActivationChunk* out, const ConstTensorView& x, DotInstructions has, std::int64_t row,
                   std::int64_t row_end) {
  with_dot(has, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR {
    for (std::int64_t r = row; r < row_end; ++r) {
      for (std::int64_t c = 0; c < x.cols; c += kQuantChunk) {
        quantize_chunk<kDot>(out[c / kQuantChunk * x.rows + r], x.f32(r) + c, std::min(kQuantChunk, x.cols - c));
      }
    }
  });
}

template <BlockType kType, Dot kDot>
void multiply_few(const QuantizedTask& task, const PanelView& panel) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const std::int64_t count = task.x.rows;
  float c[kFewRows<kDot> * kPanel];
  panel.start_chains(c, count, task.bias);
  const std::byte* chunk = panel.data;
  for (std::int64_t d = 0; d < task.w.cols; d += kQuantChunk, chunk += kFormat.chunk_bytes()) {
    const std::int64_t blocks = std::min(kQuantChunk, task.w.cols - d) / kQuantBlock;
    multiply_chunk_rows<kFormat.codes, kDot, true>(
        c, task.activations + d / kQuantChunk * count, count,
        reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes()), kFormat.block_bytes(),
        PackedScales<kFormat>{chunk}, blocks);
  }
  panel.store(task.out, c, 0, count);
}

template <BlockType kType, Dot kDot>
void multiply_many(const QuantizedTask& task, const PanelView& panel, QuantizedScratch& scratch, bool tiles) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const std::int64_t count = task.row_end - task.row;
  panel.start_chains(scratch.c, count, task.bias);
  const std::byte* chunk = panel.data;
  for (std::int64_t d = 0; d < task.w.cols; d += kQuantChunk, chunk += kFormat.chunk_bytes()) {
    const std::int64_t blocks = std::min(kQuantChunk, task.w.cols - d) / kQuantBlock;
    const auto* codes = reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes());
    const ActivationChunk* x = task.activations + d / kQuantChunk * task.x.rows + task.row;
    const LoadedScales<kFormat.codes> scales{scratch.scales};
    widen_scales<kFormat>(scratch.scales, chunk, blocks);
    constexpr bool kBytes = kFormat.codes.bits == 8;  // as they are stored
    constexpr std::int64_t kBytesOfBlock = kBytes ? kFormat.block_bytes() : kWideBytes;
    if constexpr (!kBytes) widen_codes<kFormat.codes>(scratch.codes, codes, kFormat.block_bytes(), blocks);
    const std::uint8_t* bytes = kBytes ? codes : scratch.codes;
    if (tiles) {
      multiply_chunk_tiles<kFormat.codes>(scratch.c, x, count, bytes, kBytesOfBlock, scales, blocks);
    } else {
      multiply_chunk_rows<kFormat.codes, kDot, kBytes>(scratch.c, x, count, bytes, kBytesOfBlock, scales, blocks);
    }
  }
  panel.store(task.out, scratch.c, task.row, count);
}

std::int64_t few_rows(DotInstructions has) {
  std::int64_t rows = 0;
  with_dot(has, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR { rows = kFewRows<kDot>; });
  return rows;
}

void multiply_quantized_task(const QuantizedTask& task, float* scratch) {
  const bool tiles = multiplies_tiles(task.instructions);
  std::optional<AmxShapes> shapes;
  with_dot(task.instructions, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR {
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      const PanelView panel(task.w, p);
      with_code_type(panel.part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) HWY_ATTR {
        if (task.few) return multiply_few<kType, kDot>(task, panel);
        constexpr int kGroup = scaled_codes(kType).codes.group;
        if (tiles && (!shapes || shapes->group() != kGroup)) shapes.emplace(kGroup);
        multiply_many<kType, kDot>(task, panel, *reinterpret_cast<QuantizedScratch*>(scratch), tiles);
      });
    }
  });
}

/// The same with activations as they are: the chains of multiply_tile over dequantised weights.
void multiply_dequantized_task(const QuantizedTask& task, float* scratch) {
  const std::int64_t count = task.row_end - task.row;
  float* rows = scratch;                                // [count, 256]
  float* values = rows + kFloatRowBlock * kQuantChunk;  // [256, 32]
  float* c = values + kQuantChunk * kPanel;             // [panels][count, 32]
  auto* codes = reinterpret_cast<std::uint8_t*>(c + kFloatPanels * kFloatRowBlock * kPanel);
  auto& scales = *reinterpret_cast<WideScales*>(codes + kChunkBlocks * kWideBytes);
  for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
    PanelView(task.w, p).start_chains(c + (p - task.panel) * count * kPanel, count, task.bias);
  }
  for (std::int64_t d = 0; d < task.w.cols; d += kQuantChunk) {
    const std::int64_t inputs = std::min(kQuantChunk, task.w.cols - d), blocks = inputs / kQuantBlock;
    for (std::int64_t r = 0; r < count; ++r) std::copy_n(task.x.f32(task.row + r) + d, inputs, rows + r * kTileStride);
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      const PanelView panel(task.w, p);
      with_code_type(panel.part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) HWY_ATTR {
        constexpr PanelFormat kFormat = panel_format(kType);
        const std::byte* chunk = panel.data + d / kQuantChunk * kFormat.chunk_bytes();
        widen_scales<kFormat>(scales, chunk, blocks);
        widen_codes<kFormat.codes>(codes, reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes()),
                                   kFormat.block_bytes(), blocks);
        widen_values<kFormat.codes>(values, codes, kWideBytes, scales, blocks);
      });
      multiply_tile<float>(c + (p - task.panel) * count * kPanel, kPanel, rows, count, values, 0, 1, inputs);
    }
  }
  for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
    PanelView(task.w, p).store(task.out, c + (p - task.panel) * count * kPanel, task.row, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace baton::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace baton::cpu {
namespace {

HWY_EXPORT(quantize_rows);
HWY_EXPORT(multiply_quantized_task);
HWY_EXPORT(multiply_dequantized_task);
HWY_EXPORT(few_rows);

static_assert(sizeof(QuantizedScratch) <= kThreadFloats * sizeof(float));
static_assert(kFloatRowBlock * kQuantChunk + kQuantChunk * kPanel + kFloatPanels * kFloatRowBlock * kPanel +
                  (kChunkBlocks * kWideBytes + sizeof(WideScales)) / sizeof(float) <=
              kThreadFloats);
static_assert(kTileStride == kQuantChunk);

ActivationChunk* quantized(ThreadPool& pool, Scratch& scratch, DotInstructions instructions, const ConstTensorView& x) {
  const std::int64_t chunks = (x.cols + kQuantChunk - 1) / kQuantChunk;
  auto* out = reinterpret_cast<ActivationChunk*>(scratch.shared(
      (chunks * x.rows + kAmxRows) * static_cast<std::int64_t>(sizeof(ActivationChunk) / sizeof(float))));
  const std::int64_t tasks = std::min<std::int64_t>(x.rows, 4 * pool.size());
  pool.run(tasks, x.rows * x.cols / 8, [&](std::int64_t task, int) {
    HWY_DYNAMIC_DISPATCH(quantize_rows)
    (out, x, instructions, x.rows * task / tasks, x.rows * (task + 1) / tasks);
  });
  return out;
}

}  // namespace

void matmul_quantized(ThreadPool& pool, Scratch& scratch, DotInstructions instructions, TensorView out,
                      ConstTensorView x, const QuantizedMatrix& w, std::span<const float> bias) {
  if (x.rows == 0) return;
  const bool floats = w.activations == Activations::f32;
  const bool few = !floats && x.rows <= HWY_DYNAMIC_DISPATCH(few_rows)(instructions);
  const ProductTasks tasks(x.rows, w.panels, pool.size(),
                           few      ? ProductTasks::Limits{}
                           : floats ? ProductTasks::Limits{kFloatRowBlock, kFloatPanels}
                                    : ProductTasks::Limits{kQuantRowBlock, kQuantPanels});
  const std::int64_t work =
      std::max(x.rows * w.rows * w.cols / (floats ? 16 : 32), static_cast<std::int64_t>(w.bytes / 4));

  const ActivationChunk* activations = floats ? nullptr : quantized(pool, scratch, instructions, x);

  pool.run(tasks.count(), work, [&](std::int64_t index, int thread) {
    const QuantizedTask task{tasks[index], out, x, activations, w, bias, instructions, few};
    if (floats) {
      HWY_DYNAMIC_DISPATCH(multiply_dequantized_task)(task, scratch.of_thread(thread));
    } else {
      HWY_DYNAMIC_DISPATCH(multiply_quantized_task)(task, scratch.of_thread(thread));
    }
  });
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
