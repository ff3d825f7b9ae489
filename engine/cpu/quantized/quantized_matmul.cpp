// SPDX-License-Identifier: Apache-2.0
// Activations are quantised once, then tasks multiply them with panels:
// few rows   the packed codes are taken apart on their way into the sums, once for each group of rows;
// many rows  the codes of a chunk are widened to bytes once for all rows of a block;
// tiles      the same for many rows where the processor has AMX, with activations in tiles of 16 rows.
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

#include "engine/cpu/matmul.h"
#include "engine/cpu/quantized/quantized.h"

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

/// Are tiles faster than few rows? A tile takes as long for one row as for 16 (measured on Xeons with AMX).
HWY_INLINE bool fills_tiles(std::int64_t rows) { return rows >= 12 && (rows <= kAmxRows || rows >= 22); }

/// Blocks whose largest value is below 2^-100 are taken as zeros; values that are not finite make the scale NaN, and
/// with it all outputs of the row. `sum` becomes that of the quants.
HWY_INLINE float quantize_block(std::int8_t* quants, std::int32_t& sum, const float* x) {
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
  sum = 0;
  if (bits >= 0x7f800000u || magnitude < 0x1p-100f) {
    std::fill_n(quants, kQuantBlock, std::int8_t{0});
    return bits >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  const FloatVec inverse = hn::Set(f, 127.0f / magnitude);
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
  const float shift = 0x1.8p23f;
  auto total = hn::Zero(ints);
  for (std::size_t i = 0; i < kQuantBlock; i += kWidth) {
    const FloatVec moved = hn::Add(hn::Mul(hn::LoadU(f, x + i), inverse), hn::Set(f, shift));
    const IntVec quant = hn::Sub(hn::BitCast(ints, moved), hn::Set(ints, std::bit_cast<std::int32_t>(shift)));
    const hn::Rebind<std::int8_t, IntTag> narrow;
    hn::StoreU(hn::DemoteTo(narrow, quant), narrow, quants + i);
    total = hn::Add(total, quant);
  }
  sum = hn::GetLane(hn::SumOfLanes(ints, total));
  return magnitude / 127.0f;
}

HWY_INLINE std::int32_t sum_of_quants(const std::int8_t* quants, int count) {
  std::int32_t sum = 0;
  for (int i = 0; i < count; ++i) sum += quants[i];
  return sum;
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
    std::int32_t sum = 0;
    out.scale[b] = quantize_block(quants, sum, x + b * kQuantBlock);
    std::int32_t even[2] = {}, odd[2] = {};  // of the pairs of each four quants, in each half of the block
    for (int half = 0; half < 2; ++half) {
      for (int i = 0; i < 16; i += 4) {
        even[half] += quants[half * 16 + i] + quants[half * 16 + i + 1];
        odd[half] += quants[half * 16 + i + 2] + quants[half * 16 + i + 3];
      }
    }
    out.sum[b] = out.scale[b] * static_cast<float>(sum);
    for (int half = 0; half < 2; ++half)
      out.half_sum[b][half] = out.scale[b] * static_cast<float>(even[half] + odd[half]);
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

/// Tiles [tile, tile_end) of x, as [C / 256][tiles].
void quantize_tiles(ActivationTile* out, const ConstTensorView& x, std::int64_t tile, std::int64_t tile_end) {
  const std::int64_t tiles = QuantizedTask::tiles_of(x.rows);
  for (std::int64_t t = tile; t < tile_end; ++t) {
    for (std::int64_t c = 0; c < x.cols; c += kQuantChunk) {
      ActivationTile& to = out[c / kQuantChunk * tiles + t];
      const std::int64_t rows = std::min(kAmxRows, x.rows - t * kAmxRows);
      if (rows < kAmxRows) to = {};
      for (std::int64_t r = 0; r < rows; ++r) {
        const float* from = x.f32(t * kAmxRows + r) + c;
        for (std::int64_t b = 0; b < std::min(kQuantChunk, x.cols - c) / kQuantBlock; ++b) {
          std::int32_t sum = 0;
          to.scale[b][r] = quantize_block(to.quants[b][r], sum, from + b * kQuantBlock);
          to.sum[b][r] = to.scale[b][r] * static_cast<float>(sum);
          const std::int32_t low = sum_of_quants(to.quants[b][r], 16);
          to.half_sum[b][0][r] = to.scale[b][r] * static_cast<float>(low);
          to.half_sum[b][1][r] = to.scale[b][r] * static_cast<float>(sum - low);
        }
      }
    }
  }
}

/// How rows are multiplied whose activations are quantised.
RowKind kind_of(DotInstructions has, std::int64_t rows) {
  std::int64_t few = 0;
  with_dot(has, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR { few = kFewRows<kDot>; });
  if (multiplies_tiles(has) && (rows > few || fills_tiles(rows))) return RowKind::tiles;
  return rows <= few ? RowKind::few : RowKind::many;
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
      const std::byte* chunk = panel.data + d / kQuantChunk * panel_format(panel.part.type).chunk_bytes();
      with_code_type(panel.part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
        widen_chunk<source_of(kType)>(values, kType, chunk, blocks, codes, scales);
      });
      multiply_tile<float>(c + (p - task.panel) * count * kPanel, kPanel, rows, count, {values, 0, 1}, inputs);
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
HWY_EXPORT(quantize_tiles);
HWY_EXPORT(multiply_dequantized_task);
HWY_EXPORT(kind_of);

static_assert(sizeof(QuantizedScratch) <= kThreadFloats * sizeof(float));
static_assert(kFloatRowBlock * kQuantChunk + kQuantChunk * kPanel + kFloatPanels * kFloatRowBlock * kPanel +
                  (kChunkBlocks * kWideBytes + sizeof(WideScales)) / sizeof(float) <=
              kThreadFloats);
static_assert(kTileStride == kQuantChunk);

/// T rows of x, or tiles of them, quantised.
const void* quantized(ThreadPool& pool, Scratch& scratch, DotInstructions instructions, const ConstTensorView& x,
                      RowKind kind) {
  const bool tiles = kind == RowKind::tiles;
  const std::int64_t count = tiles ? QuantizedTask::tiles_of(x.rows) : x.rows;
  const std::int64_t chunks = (x.cols + kQuantChunk - 1) / kQuantChunk;
  const auto bytes = static_cast<std::int64_t>(tiles ? sizeof(ActivationTile) : sizeof(ActivationChunk));
  void* out = scratch.shared(chunks * count * bytes / static_cast<std::int64_t>(sizeof(float)));
  const std::int64_t tasks = std::min<std::int64_t>(count, 4 * pool.size());
  pool.run(tasks, x.rows * x.cols / 8, [&](std::int64_t task, int) {
    const std::int64_t begin = count * task / tasks, end = count * (task + 1) / tasks;
    if (tiles) {
      HWY_DYNAMIC_DISPATCH(quantize_tiles)(static_cast<ActivationTile*>(out), x, begin, end);
    } else {
      HWY_DYNAMIC_DISPATCH(quantize_rows)(static_cast<ActivationChunk*>(out), x, instructions, begin, end);
    }
  });
  return out;
}

/// Multiplies the panels of a task, those of each part by the kernels of its codes.
void multiply_quantized_task(const QuantizedTask& task, float* scratch) {
  for (std::int64_t panel = task.panel; panel < task.panel_end;) {
    const PartPanels& part = task.w.part_of_panel(panel);
    const std::int64_t end = std::min(task.panel_end, part.panel + (part.rows + kPanel - 1) / kPanel);
    with_code_type(part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) {
      multiply_panels<source_of(kType)>(task, panel, end, scratch);
    });
    panel = end;
  }
}

ProductTasks tasks_of(RowKind kind, std::int64_t rows, std::int64_t panels, int threads) {
  switch (kind) {
    case RowKind::floats:
      return ProductTasks::of_many(rows, panels, threads, {kFloatRowBlock, kFloatPanels});
    case RowKind::few:
      return ProductTasks::of_few(rows, panels, threads);
    case RowKind::many:
      return ProductTasks::of_many(rows, panels, threads, {kQuantRowBlock, kQuantPanels});
    case RowKind::tiles:
      break;
  }
  return ProductTasks::of_many(QuantizedTask::tiles_of(rows), panels, threads, {kTileBlock, kQuantPanels});
}

}  // namespace

void matmul_quantized(ThreadPool& pool, Scratch& scratch, DotInstructions instructions, TensorView out,
                      ConstTensorView x, const QuantizedMatrix& w, std::span<const float> bias) {
  if (x.rows == 0) return;
  const bool floats = w.activations == Activations::f32;
  const RowKind kind = floats ? RowKind::floats : HWY_DYNAMIC_DISPATCH(kind_of)(instructions, x.rows);
  const ProductTasks tasks = tasks_of(kind, x.rows, w.panels, pool.size());
  const std::int64_t work =
      std::max(x.rows * w.rows * w.cols / (floats ? 16 : 32), static_cast<std::int64_t>(w.bytes / 4));

  const void* activations = floats ? nullptr : quantized(pool, scratch, instructions, x, kind);

  pool.run(tasks.count(), work, [&](std::int64_t index, int thread) {
    QuantizedTask task{tasks[index], out, x, activations, w, bias, instructions, kind};
    if (kind == RowKind::tiles) {
      task.row *= kAmxRows;
      task.row_end = std::min(task.row_end * kAmxRows, x.rows);
    }
    if (floats) {
      HWY_DYNAMIC_DISPATCH(multiply_dequantized_task)(task, scratch.of_thread(thread));
    } else {
      multiply_quantized_task(task, scratch.of_thread(thread));
    }
  });
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
