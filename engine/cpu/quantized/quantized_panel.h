// SPDX-License-Identifier: Apache-2.0
// How quantised weights lie in memory: panels of 32 outputs, streamed from begin to end. A panel is a chain of chunks
// of 256 inputs, a chunk a chain of blocks of 32 inputs (docs/decisions/numerics.md).
//
// A block holds 1,024 quants as unsigned codes of 4, 5 or 6 bits (quant = code - offset) or signed bytes:
//   words       8 rows of 16 words: byte j of word n in row g holds the low four bits of input 4 g + j, of output n in
//               its low half, of output n + 16 in its high half. Signed bytes: 8 rows of 32 words, one byte each
//   bit 4       5 bits: 32 words, bit g of byte j of word n is bit 4 of input 4 g + j of output n
//   bits 4, 5   6 bits: the same with two bits each, in two halves: rows 0 to 3 and rows 4 to 7
//   scales      one f16 for each output, then one f16 minimum where the format has them. K formats: an integer of
//               8 bits for each group of each output, then for each minimum; their f16 factors lie before the
//               blocks of the chunk
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cpu/panel.h"
#include "engine/tensor/code_format.h"

namespace baton::cpu {

inline constexpr std::int64_t kQuantBlock = 32;   // inputs that share the scale of an activation
inline constexpr std::int64_t kQuantChunk = 256;  // inputs of a chunk
inline constexpr std::int64_t kChunkBlocks = kQuantChunk / kQuantBlock;
inline constexpr std::int64_t kWideBytes = kPanel * kQuantBlock;  // of a block with a byte for each code

struct PanelFormat : ScaledCodes {
  constexpr std::int64_t code_bytes() const { return kPanel * kQuantBlock * codes.bits / 8; }
  constexpr std::int64_t groups() const { return kQuantBlock / codes.group; }  // of a block
  constexpr std::int64_t block_bytes() const {
    const std::int64_t minimums = codes.minimums ? 1 : 0;
    return code_bytes() + kPanel * (integer_scales ? groups() + minimums : 2 + 2 * minimums);
  }
  constexpr std::int64_t factor_bytes() const {  // of a chunk
    return !integer_scales ? 0 : codes.minimums ? 4 * kPanel : 2 * kPanel;
  }
  constexpr std::int64_t chunk_bytes() const { return factor_bytes() + kChunkBlocks * block_bytes(); }
  /// `cols` is a multiple of the format's own block.
  constexpr std::int64_t panel_bytes(std::int64_t cols) const {
    return cols / kQuantBlock * block_bytes() + cols / kQuantChunk * factor_bytes();
  }
};

/// `type` has codes.
constexpr PanelFormat panel_format(BlockType type) { return {scaled_codes(type)}; }

/// One row of activations over one chunk: 8 bits for each, a scale for each block of 32.
struct ActivationChunk {
  std::int8_t quants[kQuantChunk];
  float scale[kChunkBlocks];
  float sum[kChunkBlocks];  // scale * sum of the block's quants
  /// Where integer sums start, so that codes count as quants: -8, -16 times the sum of a block's quants, -32 times the
  /// sums of its halves. In the form in which the kernel's instructions hold such sums (dot-inl.h).
  std::int32_t start[kChunkBlocks][4];
};

/// Rows of activations that products by tiles (AMX) take together; those that are missing from the last tile are zeros.
inline constexpr std::int64_t kAmxRows = 16;

/// The chunk of kAmxRows rows: the rows of a block lie in succession, as a tile register is loaded.
struct ActivationTile {
  std::int8_t quants[kChunkBlocks][kAmxRows][kQuantBlock];
  float scale[kChunkBlocks][kAmxRows];
  float sum[kChunkBlocks][kAmxRows];
};

/// Scales and minimums of a chunk of a panel.
struct WideScales {
  float scale[2 * kChunkBlocks][kPanel];  // one row for each group
  float minimum[kChunkBlocks][kPanel];
};

}  // namespace baton::cpu
