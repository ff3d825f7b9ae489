// SPDX-License-Identifier: Apache-2.0
// How quantised weights and the activations that they multiply lie in device memory: in the order in which the lanes of
// a warp hold the operands of a tensor core (multiply_16x8x32), so that every load is of neighbouring words and nothing
// goes through shared memory (docs/decisions/0052-quantised-weights-on-a-device.md). Host code and kernels share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/host/types.h"
#include "engine/tensor/code_format.h"

namespace baton::cuda {

inline constexpr std::int64_t kPanelOutputs = 16;  // of a panel: rows of operand A
inline constexpr std::int64_t kUnitInputs = 64;    // of a unit: two blocks of 32, each with its own scales
inline constexpr std::int64_t kUnitsPerFactor = 4;
inline constexpr int kSplits = 8;  // pieces of a product's sum

/// Bytes of a unit of a panel, array by array. With g = lane / 4 and p = lane % 4, word 4 h + r of a lane has the codes
/// of block h of the unit for output g + 8 (r % 2), inputs 16 (r / 2) + 4 p to 4 p + 3, in its four bytes. Codes with
/// an offset are stored as signed numbers (quant modulo 2^bits).
struct DeviceFormat : ScaledCodes {
  /// 8 bits: words 0 to 3 of each lane, then words 4 to 7 of each lane. Else the low four bits: word 2 h + r / 2 of a
  /// lane holds those of word 4 h + r in the low half of each byte where r is even, in the high half where it is odd.
  constexpr std::int64_t code_bytes() const { return codes.bits == 8 ? 1024 : 512; }
  /// 5 bits: one word per lane, bit 4 h + r of each byte. 6 bits: two words per lane, bits 2 r and 2 r + 1 of word h.
  constexpr std::int64_t high_bytes() const { return codes.bits == 5 ? 128 : codes.bits == 6 ? 256 : 0; }
  /// One word per output: two f16, one for each block; another such word where there are minimums. Integer scales: a
  /// byte for each group of 16 (Q6_K), or two scales and two minimums.
  constexpr std::int64_t scale_bytes() const { return codes.minimums && !integer_scales ? 128 : 64; }
  /// Of kUnitsPerFactor units. One word per output: the f16 factors of the integer scales and of the minimums.
  constexpr std::int64_t factor_bytes() const { return integer_scales ? 64 : 0; }
  constexpr bool is_signed() const { return codes.offset != 0 || codes.bits == 8; }
  /// Codes are the highest bits of the bytes that are multiplied: 2^shift() times as large.
  constexpr int shift() const { return 8 - codes.bits; }
};

/// `type` has codes.
constexpr DeviceFormat device_format(BlockType type) { return {scaled_codes(type)}; }

/// Outputs [row, row + rows) of a weight: arrays [panels][units], a panel's units one after another. What the last
/// panel and the last unit have too much is zero.
struct QuantizedPart {
  BlockType type = BlockType::q8_0;
  std::int64_t row = 0, rows = 0;
  std::int64_t units = 0;
  std::int64_t factor_units = 0;  // of each panel: groups of kUnitsPerFactor units
  std::int64_t split_units = 0;   // of each split but the last ones
  const std::byte* codes = nullptr;
  const std::byte* high = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* factors = nullptr;

  constexpr std::int64_t panels() const { return blocks_of(rows, kPanelOutputs); }
};

/// Rows of activations in 8 bits, scaled for each block of 32. `rows` is a multiple of 8; rows that nobody gave are
/// zero.
struct QuantizedInputs {
  std::int8_t* quants = nullptr;  // [units][rows][64]; byte 16 p + 8 h + 4 q + j: input 32 h + 16 q + 4 p + j
  float* scales = nullptr;        // [units][rows][2]
  float* sums = nullptr;          // [units][rows][2] scale times the sum of the block's quants
  std::int64_t rows = 0;
  std::int64_t units = 0;
};

/// out[t, part.row + n] = inputs * part^T + bias, for t rows.
struct QuantizedProduct {
  float* out = nullptr;
  std::int64_t out_stride = 0;
  const float* bias = nullptr;  // of all outputs of the weight, or null
  std::int64_t t = 0;
};

}  // namespace baton::cuda
