// SPDX-License-Identifier: Apache-2.0
// How quantised weights lie in memory: panels of 32 outputs, streamed from begin to end. A panel is a chain of chunks
// of 256 inputs, a chunk a chain of blocks of 32 inputs (docs/decisions/numerics.md).
//
// A block holds 1,024 quants as unsigned codes of 2 to 6 bits (quant = code - offset, or table[code]) or signed bytes.
// Codes lie in planes of four bits, of two and of one, those that add up to their bits; the first has the lowest bits:
//   four bits   8 rows of 16 words: byte j of word n in row g holds those of input 4 g + j, of output n in its low
//   half,
//               of output n + 16 in its high half
//   two bits    two halves of 32 words: bits 2 g and 2 g + 1 of byte j of word n are those of input 4 g + j of output
//   n,
//               or, in the second half, of input 16 + 4 g + j
//   one bit     32 words: bit g of byte j of word n is that of input 4 g + j of output n
//   bytes       8 rows of 32 words, one byte each
// Behind them lie the scales:
//   f16         one for each output, then one f16 minimum where the format has them
//   integers    a byte for each group of each output, then for each minimum (Q2_K: both in one byte); their f16 factors
//               lie before the blocks of the chunk
//   exponents   a byte for each output
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cpu/machine.h"
#include "engine/cpu/matmul.h"
#include "engine/tensor/block_types.h"

namespace baton::cpu {

inline constexpr std::int64_t kQuantBlock = 32;   // inputs that share the scale of an activation
inline constexpr std::int64_t kQuantChunk = 256;  // inputs of a chunk
inline constexpr std::int64_t kChunkBlocks = kQuantChunk / kQuantBlock;
inline constexpr std::int64_t kWideBytes = kPanel * kQuantBlock;  // of a block with a byte for each code

struct PanelFormat : ScaledCodes {
  constexpr std::int64_t code_bytes() const { return kPanel * kQuantBlock * codes.bits / 8; }
  constexpr std::int64_t groups() const { return kQuantBlock / codes.group; }  // of a block
  constexpr std::int64_t scale_bytes() const {  // of an output in a block, with its minimums
    const std::int64_t minimums = codes.minimums && !half_bytes() ? 1 : 0;
    return scales == ScaleType::f16 ? 2 + 2 * minimums : groups() + minimums;
  }
  constexpr std::int64_t block_bytes() const { return code_bytes() + kPanel * scale_bytes(); }
  constexpr std::int64_t factor_bytes() const {  // of a chunk
    return !integer_scales() ? 0 : codes.minimums ? 4 * kPanel : 2 * kPanel;
  }
  constexpr std::int64_t chunk_bytes() const { return factor_bytes() + kChunkBlocks * block_bytes(); }
  /// `cols` is a multiple of the format's own block.
  constexpr std::int64_t panel_bytes(std::int64_t cols) const {
    return cols / kQuantBlock * block_bytes() + cols / kQuantChunk * factor_bytes();
  }
};

/// `type` is quantised.
constexpr PanelFormat panel_format(BlockType type) { return {scaled_codes(type)}; }

/// One row of activations over one chunk: 8 bits for each, a scale for each block of 32.
struct ActivationChunk {
  std::int8_t quants[kQuantChunk];
  float scale[kChunkBlocks];
  float sum[kChunkBlocks];          // scale * sum of the block's quants
  float half_sum[kChunkBlocks][2];  // the same of its halves
  /// Where integer sums start, so that codes count as quants: -8, -16 times the sum of a block's quants, -32 times the
  /// sums of its halves. In the form in which the kernel's instructions hold such sums (quantized_tile-inl.h).
  std::int32_t start[kChunkBlocks][4];
};

/// Rows of activations that products by tiles (AMX) take together; those that are missing from the last tile are zeros.
inline constexpr std::int64_t kAmxRows = 16;

/// The chunk of kAmxRows rows: the rows of a block lie in succession, as a tile register is loaded.
struct ActivationTile {
  std::int8_t quants[kChunkBlocks][kAmxRows][kQuantBlock];
  float scale[kChunkBlocks][kAmxRows];
  float sum[kChunkBlocks][kAmxRows];
  float half_sum[kChunkBlocks][2][kAmxRows];
};

/// Scales and minimums of a chunk of a panel.
struct WideScales {
  float scale[2 * kChunkBlocks][kPanel];  // one row for each group
  float minimum[2 * kChunkBlocks][kPanel];
};

// QuantizedMatrix: a weight [N, C] whose parts keep the quants of their block types, in panels (quantized_panel.h).

/// The panels of one part: outputs [row, row + rows); columns missing from the last panel are zeros.
struct PartPanels {
  BlockType type = BlockType::q8_0;
  std::int64_t row = 0, rows = 0;
  std::int64_t panel = 0;        // the first, among all of the matrix
  std::int64_t panel_bytes = 0;  // of each
  const std::byte* data = nullptr;
};

class QuantizedMatrix : public Matrix {
 public:
  std::vector<PartPanels> parts;
  std::int64_t panels = 0;
  Activations activations = Activations::int8;
  Buffer storage;

  const PartPanels& part_of_panel(std::int64_t panel) const;
  const PartPanels& part_of_row(std::int64_t row) const;
};

/// `parts` are checked (backend.h), have `rows` rows together and types that have panels.
std::unique_ptr<QuantizedMatrix> pack_quantized(LastingMemory& memory, ThreadPool& pool,
                                                std::span<const BlockRows> parts, std::int64_t rows,
                                                Activations activations);

/// out[C] = row `row` of the matrix, the values of dequantize().
void dequantize_row(float* out, const QuantizedMatrix& matrix, std::int64_t row);

// Matrix product with quantised weights. Arguments are checked (backend.h).

/// out[T, N] = x[T, C] * w^T + bias; see Operations::load_quantized_rows. `instructions` are those that the processor
/// has.
void matmul_quantized(ThreadPool& pool, Scratch& scratch, DotInstructions instructions, TensorView out,
                      ConstTensorView x, const QuantizedMatrix& w, std::span<const float> bias);

// A product as tasks, for the kernels.

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

/// Kernels take long to compile: each number of bits has a source of its own, generated around quantized_panels-inl.h,
/// and so have codes with tables.
inline constexpr int kTableSource = 40;
constexpr int source_of(BlockType type) {
  const CodeFormat codes = scaled_codes(type).codes;
  return codes.table == CodeTable::none ? codes.bits : kTableSource;
}

/// Multiplies panels [panel, panel_end) of a task whose activations are quantised. source_of() the types of the panels'
/// parts is kSource.
template <int kSource>
void multiply_panels(const QuantizedTask& task, std::int64_t panel, std::int64_t panel_end, float* scratch);

/// Makes f32 values [32 * blocks, 32] of a chunk of a panel. `codes` and `scales` are working memory.
template <int kSource>
void widen_chunk(float* values, BlockType type, const std::byte* chunk, std::int64_t blocks, std::uint8_t* codes,
                 WideScales& scales);

// What products with quantised weights mean, one value at a time, over the blocks as a file holds them.

/// One quant of a row of blocks: the weight is quant * scale + minimum.
struct Quant {
  int quant = 0;
  float scale = 0;
  float minimum = 0;
  int group = 32;  // inputs that share the scale
  bool has_minimum = false;
};

/// Input i of a row. `type` is quantised.
Quant quant_of(BlockType type, const std::byte* row, std::int64_t i);

class ReferenceBlocks final : public Matrix {
 public:
  /// Reads the checked parts.
  ReferenceBlocks(std::span<const BlockRows> parts, Activations activations);

  struct Row {
    BlockType type;
    const std::byte* data;
  };
  Row row(std::int64_t i) const;
  void dequantize_row(float* out, std::int64_t row) const;
  Activations activations() const { return activations_; }

 private:
  std::vector<BlockView> parts_;
  std::vector<std::vector<std::byte>> data_;  // of the parts
  Activations activations_;
};

void reference_quantized_matmul(TensorView out, ConstTensorView x, const ReferenceBlocks& w,
                                std::span<const float> bias);

}  // namespace baton::cpu
