// SPDX-License-Identifier: Apache-2.0
// Attention of rows of several sequences over their slabs. The caller has checked the arguments (checks.h).
#pragma once

#include <span>

#include "engine/backend/operations.h"
#include "engine/cpu/attention_plan.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// See Operations::attention.
void attention(ThreadPool& pool, Scratch& scratch, RowAttentionPlan& plan, TensorView out, ConstTensorView q,
               std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, float scale,
               std::span<AttentionSum* const> received);

}  // namespace baton::cpu
