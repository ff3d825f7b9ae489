// SPDX-License-Identifier: Apache-2.0
// The launches of kernels over quantised weights.
#pragma once

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/quantized/quantized_layout.h"

namespace baton::cuda {

/// quantized_rows.cu. sums[block][row] of blocks of 32 inputs of x [T, C] bf16; zero for rows from T on. C is a
/// multiple of 32.
void launch_block_sums(Stream stream, float* sums, std::int64_t sum_rows, ConstTensorView x);

/// quantized_products.cu. The sum of an output is that of kSplits chains, in ascending order, then the bias. A chain
/// goes through its share of the units: acc = fma(sum of code * x, scale, acc) for each group, and then, where the type
/// has minimums, acc = fma(minimum, sum of x, acc) for the block. It does not depend on T.
void launch_quantized_product(Stream stream, const QuantizedProduct& product, const QuantizedPart& part,
                              int multiprocessors);

/// quantized_rows.cu. out[16 panels, units * 64]: the weights of panels [first, first + panels) of the part in bf16,
/// rounded to nearest; zeros where the panel has no output.
void launch_unpack_panels(Stream stream, Bf16* out, const QuantizedPart& part, std::int64_t first, std::int64_t panels);

/// quantized_rows.cu. out[T, C] f32: row i is row ids[i] of the weight, where the part has it.
void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids);

}  // namespace baton::cuda
