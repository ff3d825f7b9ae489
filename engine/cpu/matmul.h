// SPDX-License-Identifier: Apache-2.0
// Matrix products with packed weights: of activations as they are (matmul.cpp), and rounded to bf16 (matmul_bf16.cpp).
// The caller has checked the arguments (checks.h).
#pragma once

#include <span>

#include "engine/cpu/dot.h"
#include "engine/cpu/packed_matrix.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// out[T, N] = x[T, C] * w^T + bias; see Operations::matmul.
void matmul(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
            std::span<const float> bias);

/// Are weights with bf16 activations to be packed in pairs? Products have the same bits in either form.
bool multiplies_pairs(DotInstructions has);

/// out[T, N] = bf16(x[T, C]) * w^T + bias, for w with bf16 activations: the chains of matmul over rounded inputs.
void matmul_bf16(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
                 std::span<const float> bias);

}  // namespace baton::cpu
