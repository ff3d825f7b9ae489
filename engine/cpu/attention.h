// SPDX-License-Identifier: Apache-2.0
// How attention is divided into tasks. A tile is some rows of one sequence; a task computes a tile for a group of query
// heads that read one kv head, over some or all blocks of the keys that its rows see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/cpu/machine.h"

namespace baton::cpu {

inline constexpr std::int64_t kMaxQueries = 96;  // rows times heads of a task; its working set then fits the L2 cache
/// Returns the same for heads of a width: half as many of the widest heads.
inline constexpr std::int64_t max_queries(std::int32_t head_dim) {
  return head_dim > kMaxHeadDim / 2 ? kMaxQueries / 2 : kMaxQueries;
}
// With more queries (two tiles of the product kernel), keys and values are widened to f32 first.
inline constexpr std::int64_t kFewQueries = 24;

/// Rows order[begin, end) of the plan. They see keys of blocks [block, block_end).
struct RowAttentionTile {
  std::int64_t begin, end;
  std::int64_t block, block_end;
  bool alone;  // no other tile has rows of the sequence

  std::int64_t rows() const { return end - begin; }
  std::int64_t blocks() const { return block_end - block; }
};

/// A task: blocks [block, block_end) of the keys of a tile, for one group of heads.
struct RowAttentionPart {
  std::size_t tile;
  std::int64_t group;
  std::int64_t block, block_end;
  std::int64_t work;       // measure of the time that it takes
  std::size_t parts_left;  // index in RowAttentionPlan::parts_left
  std::int64_t partials;   // index in RowAttentionPlan::partials; -1: no other task has blocks of this tile and group
};

/// The tasks of a call, and memory that they share. Kept between calls so that decode steps do not allocate.
struct RowAttentionPlan {
  std::vector<std::int32_t> order;  // rows sorted by (sequence, position)
  std::vector<RowAttentionTile> tiles;
  std::vector<RowAttentionPart> parts;      // longest first
  std::vector<std::int32_t> parts_left;     // of a tile and group: tasks that have not ended
  std::vector<float> partials;              // what tasks that share a tile and group leave for the last of them
  std::vector<std::vector<float>> weights;  // per thread: a tile's attention weights, when sums are recorded
};

struct RowAttentionSizes {
  std::int64_t groups;                 // head groups
  std::int64_t heads;                  // the most heads in a group
  std::int64_t floats;                 // per query and block, what a task stores if several tasks share a tile
  int threads;                         // threads that run the tasks
  std::int64_t queries = kMaxQueries;  // the most queries in a tile
};

/// Fills the plan for the rows; `weights` is left as it is.
void plan_attention(RowAttentionPlan& plan, const RowSpan& rows, const RowAttentionSizes& sizes);

// Attention of rows of several sequences over their slabs. The caller has checked the arguments (backend.h).

/// What a call runs with: nothing of it outlives the call but memory.
struct AttentionResources {
  ThreadPool& pool;
  Scratch& scratch;
  RowAttentionPlan& plan;
};

/// What rows attend to. `received`: see KvOperations::attention.
struct AttentionKv {
  std::span<const KvSlab> slabs;
  const KvShape& shape;
  std::span<AttentionSum* const> received;
};

/// See KvOperations::attention.
void attention(const AttentionResources& resources, TensorView out, ConstTensorView q, const AttentionKv& kv,
               const RowSpan& rows, const AttentionScores& scores);

}  // namespace baton::cpu
