// SPDX-License-Identifier: Apache-2.0
// Conventions of all tile kernels of attention: which query a packed row is, and where its scores are stored.
#pragma once

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {

inline constexpr float kUnits = 1 << 24;  // units of an AttentionSum per weight of 1

/// A packed row of a tile: a row of the call and one of its query heads.
struct LaneRow {
  int row = -1;  // index in the call; -1: none
  int tile_row = 0;
  int head = 0;
  int key_begin = 0, key_end = 0;
};

__device__ __forceinline__ LaneRow lane_row(const AttentionCall& call, const AttentionTile& tile, int packed) {
  LaneRow own;
  const int kv_head = static_cast<int>(blockIdx.y) / call.parts, part = static_cast<int>(blockIdx.y) % call.parts;
  const int group = call.heads / call.kv_heads;
  const int in_part = packed % call.part_heads, in_group = part * call.part_heads + in_part;
  own.tile_row = packed / call.part_heads;
  if (own.tile_row >= tile.rows || in_group >= group) return own;
  const TileRow& row = call.rows[tile.row_begin + own.tile_row];
  own.row = row.row;
  own.head = kv_head * group + in_group;
  own.key_begin = row.key_begin;
  own.key_end = row.key_end;
  return own;
}

/// Returns the scores [key block][packed row][kTileKeys] of a narrow tile and of this block's kv head part.
__device__ __forceinline__ float* scores_of(const AttentionCall& call, const AttentionTile& tile) {
  const std::int64_t blocks = (tile.key_end + kTileKeys - 1) / kTileKeys - tile.key_begin / kTileKeys;
  const std::int64_t before = static_cast<std::int64_t>(tile.scores) * call.kv_heads * call.parts;
  return call.scores + (before + blockIdx.y * blocks * tile.rows * call.part_heads) * kTileKeys;
}

}  // namespace baton::cuda
