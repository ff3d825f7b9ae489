// SPDX-License-Identifier: Apache-2.0
// Attention of scattered rows over their sequences' slabs. Arguments are checked (checks.h).
#pragma once

#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// Rows of one sequence that are computed together; indices into the sorted order of a call.
struct RowAttentionTile {
  std::int64_t begin, end;
};

/// What a call plans in; kept between calls so that its memory is.
struct RowAttentionPlan {
  std::vector<std::int32_t> order;  // rows by (sequence, position)
  std::vector<RowAttentionTile> tiles;
  std::vector<std::vector<float>> weights;  // per thread: what a tile's queries gave to keys, while sums are recorded
};

/// See Operations::attention.
void attention(ThreadPool& pool, Scratch& scratch, RowAttentionPlan& plan, TensorView out, ConstTensorView q,
               std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, float scale,
               std::span<AttentionSum* const> received);

}  // namespace baton::cpu
