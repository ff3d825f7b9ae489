// SPDX-License-Identifier: Apache-2.0
// The launches of kernels over quantised weights.
#pragma once

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/quantized/quantized_layout.h"

namespace baton::cuda {

/// Returns the rows that the inputs of a product of t rows have in memory: a multiple of the rows of a tile.
std::int64_t padded_rows(std::int64_t t);

/// quantized_inputs.cu. x [T, C] f32; rows beyond T and inputs beyond C become zero. A block that has a value which is
/// not finite gets the scale NaN; one whose values are all below 2^-100 counts as zeros.
void launch_quantize_inputs(Stream stream, const QuantizedInputs& out, ConstTensorView x);

/// quantized_products.cu. The sum of an output is that of kSplits chains, in ascending order, then the bias; each chain
/// is Operations::load_quantized_rows' over its share of the units. It does not depend on T.
void launch_quantized_product(Stream stream, const QuantizedProduct& product, const QuantizedPart& part,
                              const QuantizedInputs& inputs, int multiprocessors);

/// quantized_rows.cu. out[T, C] f32: row i is row ids[i] of the weight, where the part has it.
void launch_dequantize_rows(Stream stream, TensorView out, const QuantizedPart& part, const std::int32_t* ids);

}  // namespace baton::cuda
