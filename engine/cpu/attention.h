// SPDX-License-Identifier: Apache-2.0
// Attention of rows of several sequences over their slabs. The caller has checked the arguments (checks.h).
#pragma once

#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// Rows [begin, end) of one sequence that are computed together; indices into RowAttentionPlan::order.
struct RowAttentionTile {
  std::int64_t begin, end;
};

/// Scratch memory for planning a call; kept between calls so that decode steps do not allocate.
struct RowAttentionPlan {
  std::vector<std::int32_t> order;  // rows sorted by (sequence, position)
  std::vector<RowAttentionTile> tiles;
  std::vector<std::vector<float>> weights;  // per thread: a tile's attention weights, when sums are recorded
};

/// See Operations::attention.
void attention(ThreadPool& pool, Scratch& scratch, RowAttentionPlan& plan, TensorView out, ConstTensorView q,
               std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, float scale,
               std::span<AttentionSum* const> received);

}  // namespace baton::cpu
