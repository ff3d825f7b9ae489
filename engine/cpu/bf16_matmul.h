// SPDX-License-Identifier: Apache-2.0
// Matrix product of bf16 weights with activations rounded to bf16: the chains of matmul.h over rounded inputs. The
// caller has checked the arguments (checks.h).
#pragma once

#include <span>

#include "engine/cpu/dot.h"
#include "engine/cpu/packed_matrix.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// Are weights for these products to be packed in pairs? They have the same bits in either form.
bool multiplies_pairs(DotInstructions has);

/// out[T, N] = bf16(x[T, C]) * w^T + bias; see Operations::matmul. w has bf16 activations.
void matmul_bf16(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
                 std::span<const float> bias);

}  // namespace baton::cpu
