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
#include <optional>

#include "engine/cpu/matmul.h"
#include "engine/cpu/quantized/quantized.h"

#ifndef BATON_CPU_QUANTIZED_MATMUL_SHARED_
#define BATON_CPU_QUANTIZED_MATMUL_SHARED_
namespace baton::cpu {

inline constexpr std::int64_t kQuantRowBlock = 256;  // rows that share a widened chunk
inline constexpr std::int64_t kTileBlock = 8;        // tiles that do: their outputs stay in L1
inline constexpr std::int64_t kQuantPanels = 64;     // of a task
inline constexpr std::int64_t kFloatRowBlock = 240;  // rows that share a chunk widened to floats
inline constexpr std::int64_t kFloatPanels = 8;      // panels that share a copy of those

enum class RowKind : std::uint8_t { floats, few, many, tiles };

struct QuantizedTask : ProductTask {
  TensorView out;
  ConstTensorView x;
  const void* activations;  // ActivationChunk [C / 256][T], or ActivationTile [C / 256][tiles of T]
  const QuantizedMatrix& w;
  std::span<const float> bias;
  DotInstructions instructions;
  RowKind kind;

  const ActivationChunk* chunk(std::int64_t c) const {
    return static_cast<const ActivationChunk*>(activations) + c * x.rows;
  }
  const ActivationTile* tiles(std::int64_t c) const {
    return static_cast<const ActivationTile*>(activations) + c * tiles_of(x.rows);
  }
  static std::int64_t tiles_of(std::int64_t rows) { return (rows + kAmxRows - 1) / kAmxRows; }
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
static_assert(kTileBlock * kAmxRows <= kQuantRowBlock);

}  // namespace baton::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace baton::cpu {
namespace HWY_NAMESPACE {

/// Rows for which codes are not widened first. With groups of eight, each of which takes the codes apart, 10 to 24 rows
/// are 4 to 10 % faster than with widening; with groups of four, a second group costs more than widening.
template <Dot kDot>
inline constexpr std::int64_t kFewRows = kPackedRows<kDot> == kQuantRows ? kQuantRows : 3 * kPackedRows<kDot>;

/// Are tiles faster than few rows? A tile takes as long for one row as for 16 (measured on Xeons with AMX).
HWY_INLINE bool fills_tiles(std::int64_t rows) { return rows >= 12 && (rows <= kAmxRows || rows >= 22); }

/// Calls fn with std::integral_constant<Dot, ...>: how this processor multiplies bytes.
template <class Fn>
HWY_INLINE void with_dot(DotInstructions has, const Fn& fn) {
  if constexpr (kHasPairs) {
    if (!adds_quads(has)) return fn(std::integral_constant<Dot, Dot::pairs>());
  }
  fn(std::integral_constant<Dot, Dot::quads>());
}

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
        }
      }
    }
  }
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
        c, task.chunk(d / kQuantChunk), count, reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes()),
        kFormat.block_bytes(), PackedScales<kFormat>{chunk}, blocks);
  }
  panel.store(task.out, c, 0, count);
}

template <BlockType kType, Dot kDot>
void multiply_many(const QuantizedTask& task, const PanelView& panel, QuantizedScratch& scratch) {
  constexpr PanelFormat kFormat = panel_format(kType);
  const std::int64_t count = task.row_end - task.row;
  const bool tiles = task.kind == RowKind::tiles;
  panel.start_chains(scratch.c, tiles ? QuantizedTask::tiles_of(count) * kAmxRows : count, task.bias);
  const std::byte* chunk = panel.data;
  for (std::int64_t d = 0; d < task.w.cols; d += kQuantChunk, chunk += kFormat.chunk_bytes()) {
    const std::int64_t blocks = std::min(kQuantChunk, task.w.cols - d) / kQuantBlock;
    const auto* codes = reinterpret_cast<const std::uint8_t*>(chunk + kFormat.factor_bytes());
    const LoadedScales<kFormat.codes> scales{scratch.scales};
    widen_scales<kFormat>(scratch.scales, chunk, blocks);
    constexpr bool kBytes = kFormat.codes.bits == 8;  // as they are stored
    constexpr std::int64_t kBytesOfBlock = kBytes ? kFormat.block_bytes() : kWideBytes;
    if constexpr (!kBytes) widen_codes<kFormat.codes>(scratch.codes, codes, kFormat.block_bytes(), blocks);
    const std::uint8_t* bytes = kBytes ? codes : scratch.codes;
    if (tiles) {
      if constexpr (kFormat.codes.offset != 0) subtract_offset<kFormat.codes>(scratch.codes, blocks);
      multiply_chunk_tiles<kFormat.codes>(scratch.c, task.tiles(d / kQuantChunk) + task.row / kAmxRows,
                                          QuantizedTask::tiles_of(count), bytes, kBytesOfBlock, scales, blocks);
    } else {
      multiply_chunk_rows<kFormat.codes, kDot, kBytes>(scratch.c, task.chunk(d / kQuantChunk) + task.row, count, bytes,
                                                       kBytesOfBlock, scales, blocks);
    }
  }
  panel.store(task.out, scratch.c, task.row, count);
}

/// How rows are multiplied whose activations are quantised.
RowKind kind_of(DotInstructions has, std::int64_t rows) {
  std::int64_t few = 0;
  with_dot(has, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR { few = kFewRows<kDot>; });
  if (multiplies_tiles(has) && (rows > few || fills_tiles(rows))) return RowKind::tiles;
  return rows <= few ? RowKind::few : RowKind::many;
}

void multiply_quantized_task(const QuantizedTask& task, float* scratch) {
  std::optional<AmxShapes> shapes;
  with_dot(task.instructions, [&]<Dot kDot>(std::integral_constant<Dot, kDot>) HWY_ATTR {
    for (std::int64_t p = task.panel; p < task.panel_end; ++p) {
      const PanelView panel(task.w, p);
      with_code_type(panel.part.type, [&]<BlockType kType>(std::integral_constant<BlockType, kType>) HWY_ATTR {
        if (task.kind == RowKind::few) return multiply_few<kType, kDot>(task, panel);
        constexpr int kGroup = scaled_codes(kType).codes.group;
        if (task.kind == RowKind::tiles && (!shapes || shapes->group() != kGroup)) shapes.emplace(kGroup);
        multiply_many<kType, kDot>(task, panel, *reinterpret_cast<QuantizedScratch*>(scratch));
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
HWY_EXPORT(quantize_tiles);
HWY_EXPORT(multiply_quantized_task);
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
      HWY_DYNAMIC_DISPATCH(multiply_quantized_task)(task, scratch.of_thread(thread));
    }
  });
}

}  // namespace baton::cpu
#endif  // HWY_ONCE
