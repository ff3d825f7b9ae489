// SPDX-License-Identifier: Apache-2.0
// Matrix product with packed weights. The caller has checked the arguments (checks.h).
#pragma once

#include <span>

#include "engine/cpu/packed_matrix.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// out[T, N] = x[T, C] * w^T + bias; see Operations::matmul.
void matmul(ThreadPool& pool, Scratch& scratch, TensorView out, ConstTensorView x, const PackedMatrix& w,
            std::span<const float> bias);

}  // namespace baton::cpu
