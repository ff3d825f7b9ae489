// SPDX-License-Identifier: Apache-2.0
// How quantised weights lie in device memory: in the order in which the lanes of a warp hold operand A of a tensor core
// (multiply_16x8x16), so that every load is of neighbouring words and nothing goes through shared memory
// (docs/decisions/cuda.md). Host code and kernels share it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/host/runtime.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/tensor/block_types.h"

namespace baton::cuda {

inline constexpr std::int64_t kPanelOutputs = 16;  // of a panel: rows of operand A
inline constexpr std::int64_t kBlockInputs = 32;   // of a block, whose codes share scales
inline constexpr std::int64_t kUnitInputs = 64;    // of a unit: two blocks
inline constexpr std::int64_t kUnitsPerFactor = 4;
inline constexpr int kSplits = 8;             // pieces of a product's sum
inline constexpr std::int64_t kSumRows = 24;  // rows of a warp for types with minimums

/// A unit of a panel, array by array. A lane has g = lane / 4 and p = lane % 4. Of block h (0, 1) and step s (0, 1) of
/// the unit it holds four pairs of codes; pair j is of output g + 8 (j % 2) and of inputs first, first + 1, where first
/// is input_of(h, s, p) + 2 (j / 2).
struct DeviceFormat : ScaledCodes {
  /// Codes lie in planes of four bits, of two and of one, those that add up to their bits; the first has the lowest.
  /// Four bits: word 2 h + s of a lane has pair j at bits 4 j and 16 + 4 j.
  /// Two bits: word h of two per lane, pair j at bits 2 t and 16 + 2 t, t = 4 s + j.
  /// One bit: one word per lane, pair j at bits t and 16 + t, t = 8 h + 4 s + j.
  /// 8 bits: words 0 to 3 of each lane, then words 4 to 7 of each lane; word 4 h + 2 s + j % 2 has the codes of pairs
  /// j and j + 2, one a byte. The codes are the quants plus 128.
  constexpr std::int64_t code_bytes() const { return codes.bits == 8 ? 1024 : codes.bits >= 4 ? 512 : 256; }
  /// Returns the bytes of the second plane, 0 if the type has one plane.
  constexpr std::int64_t high_bytes() const {
    return codes.bits == 8 ? 0 : codes.bits % 2 != 0 ? 128 : codes.bits == 6 ? 256 : 0;
  }
  /// For each output. f16: one for each block, then the minimums. Integers: a byte for each group (Q2_K: with its
  /// minimum), then for each minimum. Exponents: a byte for each block.
  constexpr std::int64_t output_bytes() const {
    const std::int64_t groups = kUnitInputs / codes.group, minimums = codes.minimums && !half_bytes() ? groups : 0;
    return (groups + minimums) * (scales == ScaleType::f16 ? 2 : 1);
  }
  constexpr std::int64_t scale_bytes() const { return output_bytes() * kPanelOutputs; }
  /// Of kUnitsPerFactor units. For each output the f16 factor of the integer scales, then that of the minimums.
  constexpr std::int64_t factor_bytes() const {
    return !integer_scales() ? 0 : (codes.minimums ? 4 : 2) * kPanelOutputs;
  }
  /// A step multiplies 16 inputs. Where they need one scale, they are neighbours, four of each lane; else a lane has
  /// eight neighbours in both steps, which it loads at once.
  constexpr std::int64_t input_of(std::int64_t h, std::int64_t s, std::int64_t p) const {
    return kBlockInputs * h + (codes.group == 16 ? 16 * s + 4 * p : 8 * p + 4 * s);
  }
  constexpr int offset() const { return codes.bits == 8 ? 128 : codes.offset; }
};

/// `type` is quantised.
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

/// out[t, part.row + n] = x * part^T + bias.
struct QuantizedProduct {
  std::byte* out = nullptr;
  std::int64_t out_stride = 0;
  bool out_bf16 = false;    // else f32
  const Bf16* x = nullptr;  // [t][units * kUnitInputs], rows aligned to 16 bytes
  std::int64_t x_stride = 0;
  const float* sums = nullptr;       // [units * 2][sum_rows] of x, for types with minimums of 32 inputs
  const float* half_sums = nullptr;  // [units * 4][sum_rows] of x, for types with minimums of 16 inputs
  std::int64_t sum_rows = 0;         // a multiple of kSumRows, at least t
  const float* bias = nullptr;       // of all outputs of the weight, or null
  std::int64_t t = 0;
};

// The launches of kernels over quantised weights.

/// sums[group][row] of groups of 32 or 16 inputs of x [T, C] bf16; zero for rows from T on. C is a multiple of 32.
void launch_block_sums(Stream stream, float* sums, std::int64_t sum_rows, ConstTensorView x, int group);

/// The sum of an output is that of kSplits chains, in ascending order, then the bias. A chain
/// goes through its share of the units: acc = fma(sum of code * x, scale, acc) for each group of a block, and then,
/// where the type has minimums, acc = fma(minimum, sum of x, acc) for each group. It does not depend on T.
void launch_quantized_product(Stream stream, const QuantizedProduct& product, const QuantizedPart& part,
                              int multiprocessors);

/// out[16 panels, units * 64]: the weights of panels [first, first + panels) of the part in bf16,
/// rounded to nearest; zeros where the panel has no output.
void launch_unpack_panels(Stream stream, Bf16* out, const QuantizedPart& part, std::int64_t first, std::int64_t panels);

/// out[T, C] f32: row i is row ids[i] of the weight, where the part has it.
void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids);

}  // namespace baton::cuda
