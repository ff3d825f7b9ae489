// SPDX-License-Identifier: Apache-2.0
// Attention of rows of several sequences over their slabs. The caller has checked the arguments (checks.h).
#pragma once

#include <span>
#include <vector>

#include "engine/backend/operations.h"
#include "engine/cpu/scratch.h"
#include "engine/cpu/thread_pool.h"

namespace baton::cpu {

/// Rows [begin, end) of one sequence that are computed together; indices into RowAttentionPlan::order. They see keys of
/// blocks [block, block_end).
struct RowAttentionTile {
  std::int64_t begin, end;
  std::int64_t block, block_end;
};

/// A task: a tile, one of its groups of heads, and blocks [block, block_end) of its keys.
struct RowAttentionPart {
  std::size_t tile;
  std::int64_t group;
  std::int64_t block, block_end;
  std::int64_t work;       // measure of the time that it takes
  std::int64_t partials;   // index in RowAttentionPlan::partials; -1: no other task has blocks of this tile and group
  std::size_t parts_left;  // index in RowAttentionPlan::parts_left
};

/// Scratch memory for planning a call; kept between calls so that decode steps do not allocate.
struct RowAttentionPlan {
  std::vector<std::int32_t> order;  // rows sorted by (sequence, position)
  std::vector<RowAttentionTile> tiles;
  std::vector<RowAttentionPart> parts;
  std::vector<std::vector<float>> weights;  // per thread: a tile's attention weights, when sums are recorded
  std::vector<float> partials;              // what tasks that share a tile and group have computed
  std::vector<std::int32_t> parts_left;     // how many of them have not ended
};

/// See Operations::attention.
void attention(ThreadPool& pool, Scratch& scratch, RowAttentionPlan& plan, TensorView out, ConstTensorView q,
               std::span<const KvSlab> slabs, const KvShape& shape, const RowSpan& rows, float scale,
               std::span<AttentionSum* const> received);

}  // namespace baton::cpu
