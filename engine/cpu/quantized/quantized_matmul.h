// SPDX-License-Identifier: Apache-2.0
// Matrix product with quantised weights. Arguments are checked (checks.h).
#pragma once

#include <span>

#include "engine/cpu/dot.h"
#include "engine/cpu/quantized/quantized_matrix.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// out[T, N] = x[T, C] * w^T + bias; see Operations::load_quantized_rows. `instructions` are those that the processor
/// has.
void matmul_quantized(ThreadPool& pool, Scratch& scratch, DotInstructions instructions, TensorView out,
                      ConstTensorView x, const QuantizedMatrix& w, std::span<const float> bias);

}  // namespace baton::cpu
