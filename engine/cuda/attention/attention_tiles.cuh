// SPDX-License-Identifier: Apache-2.0
// Conventions of all tile kernels of attention: which query a packed row is, and where its scores are stored.
#pragma once

#include <cmath>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {

inline constexpr float kUnits = 1 << 24;      // units of an AttentionSum per weight of 1
inline constexpr float kLog2e = 1.44269504f;  // weights are powers of two

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

/// Returns the sink of a query head times log2(e), which is the unit of scores in tiles; -infinity without sinks.
__device__ __forceinline__ float sink_of(const AttentionCall& call, int head) {
  return call.sinks == nullptr ? -INFINITY : call.sinks[head] * kLog2e;
}

// Attention on the tensor cores. A block takes up to 16 * kWarpsM packed rows, (row, query head) pairs of one kv head,
// over a range of keys in blocks of 64: scores = q k^T and out += p v as m16n8k16 products, online softmax between them
// (FlashAttention-2, arXiv 2307.08691), keys and values copied ahead into the other half of shared memory.
// Every row has its own keys [key_begin, key_end); blocks that all rows see whole are not masked.
//   wide    4 x 1 warps: each warp has 16 packed rows and all 64 keys            prefill
//   narrow  1 x 4 warps: all warps have the same 16 rows, each 16 of the keys    decode; merged at the end

inline constexpr int kTileWarps = 4;
inline constexpr int kTileThreads = 32 * kTileWarps;

/// The number of blocks per multiprocessor that register use must allow. Narrow tiles wait for memory and need more.
constexpr int min_blocks(int head_dim, int warps_m) {
  if (warps_m == 1) return head_dim <= 64 ? 4 : 3;
  return head_dim <= 32 ? 4 : head_dim <= 64 ? 3 : 2;
}

template <int D, int kWarpsM>
struct TileShape {
  static constexpr int kWarpsK = kTileWarps / kWarpsM;
  static constexpr int kWarpKeys = kTileKeys / kWarpsK;  // per key block
  static constexpr int kScoreTiles = kWarpKeys / 8;
  static constexpr int kSteps = D / 16;    // of products over the head width
  static constexpr int kOutTiles = D / 8;  // of the output
  // Rows have an odd number of 16-byte chunks, so that the eight rows of a matrix load hit different banks.
  static constexpr int kRow = D + 8;
};

template <int D>
struct KeyStage {
  alignas(16) Bf16 rows[kTileKeys][D + 8];
};
template <int D>
struct TileStages {
  KeyStage<D> keys[2], values[2];
};
/// The final results of a narrow tile's warps, [warp][packed row].
template <int D>
struct TileMerge {
  float out[kTileWarps][16][D + 4];
  float highest[kTileWarps][16], sum[kTileWarps][16];
};
template <int D>
union TileShared {
  TileStages<D> stages;
  TileMerge<D> merge;
};
template <int D>
struct ReceivedShared {
  KeyStage<D> keys[2];
};

/// The queries of a lane's rows as the left operand, rounded to bf16.
template <int D>
__device__ __forceinline__ void load_queries(std::uint32_t (&q)[D / 16][4], const AttentionCall& call,
                                             const LaneRow (&own)[2]) {
  const int pair = static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float* from = call.q + own[r].row * call.q_stride + own[r].head * D + pair;
#pragma unroll
    for (int step = 0; step < D / 16; ++step) {
      if (own[r].row < 0) {
        q[step][r] = q[step][r + 2] = 0;
      } else {
        const float2 low = *reinterpret_cast<const float2*>(from + step * 16);
        const float2 high = *reinterpret_cast<const float2*>(from + step * 16 + 8);
        q[step][r] = pack_bf16(low.x, low.y);
        q[step][r + 2] = pack_bf16(high.x, high.y);
      }
    }
  }
}

/// Starts copying keys (or values) [block, block + 64) of a kv head. Keys outside the tile's range may never have been
/// written; they become zero.
template <int D>
__device__ __forceinline__ void load_stage(KeyStage<D>& stage, const Bf16* head, int block, const AttentionTile& tile) {
  constexpr int kChunks = D / 8;
#pragma unroll 4  // unrolled fully, it needs so many addresses that heads of 128 spill
  for (int i = 0; i < kTileKeys * kChunks / kTileThreads; ++i) {
    const int at = static_cast<int>(threadIdx.x) + i * kTileThreads;
    const int key = at / kChunks, chunk = at % kChunks * 8;
    const bool valid = block + key >= tile.key_begin && block + key < tile.key_end;
    copy_async_16(&stage.rows[key][chunk], head + static_cast<std::int64_t>(block + key) * D + chunk, valid);
  }
}

/// s[16, keys of the warp] = q k^T
template <int D, class Shape>
__device__ __forceinline__ void score_tiles(float (&s)[Shape::kScoreTiles][4], const std::uint32_t (&q)[D / 16][4],
                                            const KeyStage<D>& keys, int first_key) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int n = 0; n < Shape::kScoreTiles; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0f;
  const Bf16* row = &keys.rows[first_key + (lane & 7) + (lane >> 4) * 8][((lane >> 3) & 1) * 8];
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
#pragma unroll
    for (int n = 0; n < Shape::kScoreTiles; n += 2) {
      std::uint32_t b[4];
      load_matrix_x4(b, row + n * 8 * Shape::kRow + step * 16);
      multiply_16x8x16(s[n], q[step], b[0], b[1]);
      multiply_16x8x16(s[n + 1], q[step], b[2], b[3]);
    }
  }
}

/// Scores of keys outside [key_begin, key_end) of their row become minus infinity. first_key is absolute.
template <int kScoreTiles>
__device__ __forceinline__ void mask_tiles(float (&s)[kScoreTiles][4], const LaneRow (&own)[2], int first_key,
                                           int end_less = 0) {
  const int key_of_lane = first_key + static_cast<int>(threadIdx.x % 4) * 2;
#pragma unroll
  for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key_of_lane + n * 8 + (i & 1);
      if (key < own[i >> 1].key_begin || key >= own[i >> 1].key_end - end_less) s[n][i] = -INFINITY;
    }
  }
}

__device__ __forceinline__ bool needs_mask(const AttentionTile& tile, int block) {
  return block < tile.free_begin || block + kTileKeys > tile.free_end;
}

__device__ __forceinline__ float quad_max(float value) {
  value = fmaxf(value, shuffle_xor(value, 1));
  return fmaxf(value, shuffle_xor(value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value += shuffle_xor(value, 1);
  return value + shuffle_xor(value, 2);
}

/// Stores the scores of key block number `ordinal` of a narrow tile for receive_scores.
template <int kScoreTiles>
__device__ __forceinline__ void keep_scores(const AttentionCall& call, const AttentionTile& tile,
                                            const LaneRow (&own)[2], const float (&s)[kScoreTiles][4], int ordinal,
                                            int warp_keys, float scale) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int packed_rows = tile.rows * call.part_heads;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (own[r].row < 0) continue;
    float* to = scores_of(call, tile) +
                static_cast<std::int64_t>(ordinal * packed_rows + lane / 4 + 8 * r) * kTileKeys + warp_keys;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      *reinterpret_cast<float2*>(to + n * 8 + lane % 4 * 2) = float2{s[n][2 * r] * scale, s[n][2 * r + 1] * scale};
    }
  }
}

/// Returns the maximum to subtract from scores: 0 for a row that has seen no key yet, to avoid infinity minus infinity.
__device__ __forceinline__ float base_of(float highest) { return highest == -INFINITY ? 0.0f : highest; }

/// Replaces scores by weights exp2(scale * s - highest), and rescales the row's sum and output to the new maximum.
template <int kScoreTiles, int kOutTiles>
__device__ __forceinline__ void soften(float (&s)[kScoreTiles][4], float (&out)[kOutTiles][4], float (&highest)[2],
                                       float (&sum)[2], float scale) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float high = -INFINITY;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) high = fmaxf(high, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
    const float now = fmaxf(highest[r], quad_max(high) * scale);
    const float base = base_of(now);
    const float shrink = exp2_fast(highest[r] - base);
    highest[r] = now;
    sum[r] *= shrink;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      s[n][2 * r] = exp2_fast(fmaf(s[n][2 * r], scale, -base));
      s[n][2 * r + 1] = exp2_fast(fmaf(s[n][2 * r + 1], scale, -base));
      sum[r] += s[n][2 * r] + s[n][2 * r + 1];
    }
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) out[n][2 * r] *= shrink, out[n][2 * r + 1] *= shrink;
  }
}

/// out[16, D] += p[16, keys of the warp] v. The fragments of the scores, rounded, have the layout of a left operand.
template <int D, class Shape>
__device__ __forceinline__ void add_values(float (&out)[Shape::kOutTiles][4], const float (&p)[Shape::kScoreTiles][4],
                                           const KeyStage<D>& values, int first_key) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const Bf16* row = &values.rows[first_key + (lane & 15)][(lane >> 4) * 8];
#pragma unroll
  for (int step = 0; step < Shape::kScoreTiles / 2; ++step) {
    const std::uint32_t a[4] = {pack_bf16(p[2 * step][0], p[2 * step][1]), pack_bf16(p[2 * step][2], p[2 * step][3]),
                                pack_bf16(p[2 * step + 1][0], p[2 * step + 1][1]),
                                pack_bf16(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
    for (int n = 0; n < Shape::kOutTiles; n += 2) {
      std::uint32_t b[4];
      load_matrix_x4_transposed(b, row + step * 16 * Shape::kRow + n * 8);
      multiply_16x8x16(out[n], a, b[0], b[1]);
      multiply_16x8x16(out[n + 1], a, b[2], b[3]);
    }
  }
}

/// Writes two neighbouring columns of a row's result, either to the output or to a slot of partial results.
template <int D>
__device__ __forceinline__ void write_pair(const AttentionCall& call, const AttentionTile& tile, const LaneRow& own,
                                           int column, float a, float b) {
  if (tile.partial >= 0) {
    const std::int64_t slot = static_cast<std::int64_t>(tile.partial + own.tile_row) * call.heads + own.head;
    *reinterpret_cast<float2*>(call.partial + slot * D + column) = float2{a, b};
    return;
  }
  const std::int64_t at = own.row * call.out_stride + own.head * D + column;
  if (call.out_bf16) {
    *reinterpret_cast<std::uint32_t*>(static_cast<Bf16*>(call.out) + at) = pack_bf16(a, b);
  } else {
    *reinterpret_cast<float2*>(static_cast<float*>(call.out) + at) = float2{a, b};
  }
}

/// Returns the factor of a row's result when it is written: partial results are not divided by the sum of weights.
__device__ __forceinline__ float closing_scale(const AttentionTile& tile, float sum) {
  return tile.partial >= 0 ? 1.0f : 1.0f / sum;
}

__device__ __forceinline__ void write_sums(const AttentionCall& call, const AttentionTile& tile, const LaneRow& own,
                                           float highest, float sum) {
  if (tile.partial >= 0) {
    const std::int64_t slot = static_cast<std::int64_t>(tile.partial + own.tile_row) * call.heads + own.head;
    call.partial_max[slot] = highest;
    call.partial_sum[slot] = sum;
  } else if (call.logsum != nullptr) {
    call.logsum[static_cast<std::int64_t>(own.row) * call.heads + own.head] = highest + log2f(sum);
  }
}

/// Merges and writes the results of a narrow tile, whose four warps have different keys of the same 16 packed rows.
template <int D>
__device__ __forceinline__ void merge_warps(TileMerge<D>& merge, const AttentionCall& call, const AttentionTile& tile,
                                            const float (&out)[D / 8][4], const float (&highest)[2],
                                            const float (&sum)[2]) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  sync_block();  // the keys and values in the same memory have been read
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = lane / 4 + 8 * r;
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      *reinterpret_cast<float2*>(&merge.out[warp][row][n * 8 + lane % 4 * 2]) =
          float2{out[n][2 * r], out[n][2 * r + 1]};
    }
    if (lane % 4 == 0) {
      merge.highest[warp][row] = highest[r];
      merge.sum[warp][row] = sum[r];
    }
  }
  sync_block();
  constexpr int kThreadsPerRow = kTileThreads / 16;
  const int row = static_cast<int>(threadIdx.x) / kThreadsPerRow;
  const LaneRow own = lane_row(call, tile, row);
  if (own.row < 0) return;
  float high = merge.highest[0][row];
  for (int w = 1; w < kTileWarps; ++w) high = fmaxf(high, merge.highest[w][row]);
  float share[kTileWarps], total = 0.0f;
#pragma unroll
  for (int w = 0; w < kTileWarps; ++w) {
    share[w] = exp2_fast(merge.highest[w][row] - base_of(high));
    total = fmaf(merge.sum[w][row], share[w], total);
  }
  const float scale = closing_scale(tile, total);
  const int first = static_cast<int>(threadIdx.x) % kThreadsPerRow;
  for (int c = first * 2; c < D; c += 2 * kThreadsPerRow) {
    float a = 0.0f, b = 0.0f;
#pragma unroll
    for (int w = 0; w < kTileWarps; ++w) {
      a = fmaf(merge.out[w][row][c], share[w], a);
      b = fmaf(merge.out[w][row][c + 1], share[w], b);
    }
    write_pair<D>(call, tile, own, c, a * scale, b * scale);
  }
  if (first == 0) write_sums(call, tile, own, high, total);
}

template <int D, int kWarpsM>
__global__ void __launch_bounds__(kTileThreads, min_blocks(D, kWarpsM))
    attend_tiles(AttentionCall call, const AttentionTile* tiles) {  // [gridDim.x]
  using Shape = TileShape<D, kWarpsM>;
  TileShared<D>& shared = shared_memory<TileShared<D>>();
  const AttentionTile tile = tiles[blockIdx.x];
  if (tile.rows == 0) return;  // the whole block
  const KvSlab slab = call.slabs[tile.sequence];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warp_rows = kWarpsM == 1 ? 0 : warp * 16;
  const int warp_keys = kWarpsM == 1 ? warp * Shape::kWarpKeys : 0;
  const std::int64_t head = static_cast<std::int64_t>(blockIdx.y / call.parts) * slab.capacity * D;
  const Bf16* keys = reinterpret_cast<const Bf16*>(slab.keys) + head;
  const Bf16* values = reinterpret_cast<const Bf16*>(slab.values) + head;
  const float scale = call.scale * kLog2e;

  const int first = tile.key_begin / kTileKeys * kTileKeys;
  load_stage<D>(shared.stages.keys[0], keys, first, tile);
  load_stage<D>(shared.stages.values[0], values, first, tile);
  copy_async_commit();

  const LaneRow own[2] = {lane_row(call, tile, warp_rows + lane / 4), lane_row(call, tile, warp_rows + lane / 4 + 8)};
  std::uint32_t q[Shape::kSteps][4];
  load_queries<D>(q, call, own);
  float out[Shape::kOutTiles][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  if (call.sinks != nullptr && tile.partial < 0 && (kWarpsM != 1 || warp == 0)) {
    // One lane of those that share a row has the sink's weight, of one warp where all have the same rows.
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (own[r].row < 0) continue;
      highest[r] = sink_of(call, own[r].head);
      sum[r] = lane % 4 == 0 ? 1.0f : 0.0f;
    }
  }

  const bool keep = kWarpsM == 1 && call.scores != nullptr && call.received[tile.sequence] != nullptr;
  int stage = 0;
  for (int block = first; block < tile.key_end; block += kTileKeys, stage ^= 1) {
    copy_async_wait<0>();
    sync_block();  // all warps have this block, and none reads the other stage any more
    if (block + kTileKeys < tile.key_end) {
      load_stage<D>(shared.stages.keys[stage ^ 1], keys, block + kTileKeys, tile);
      load_stage<D>(shared.stages.values[stage ^ 1], values, block + kTileKeys, tile);
      copy_async_commit();
    }
    float s[Shape::kScoreTiles][4];
    score_tiles<D, Shape>(s, q, shared.stages.keys[stage], warp_keys);
    if (needs_mask(tile, block)) mask_tiles(s, own, block + warp_keys);
    if constexpr (kWarpsM == 1) {
      if (keep) keep_scores(call, tile, own, s, (block - first) / kTileKeys, warp_keys, scale);
    }
    soften(s, out, highest, sum, scale);
    add_values<D, Shape>(out, s, shared.stages.values[stage], warp_keys);
  }
  sum[0] = quad_sum(sum[0]);
  sum[1] = quad_sum(sum[1]);

  if constexpr (kWarpsM == 1) {
    merge_warps<D>(shared.merge, call, tile, out, highest, sum);
  } else {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (own[r].row < 0) continue;
      const float closing = closing_scale(tile, sum[r]);
#pragma unroll
      for (int n = 0; n < Shape::kOutTiles; ++n) {
        write_pair<D>(call, tile, own[r], n * 8 + lane % 4 * 2, out[n][2 * r] * closing, out[n][2 * r + 1] * closing);
      }
      if (lane % 4 == 0) write_sums(call, tile, own[r], highest[r], sum[r]);
    }
  }
}

/// Adds to `received` the weights that the rows of a wide tile give to earlier keys. The scores are computed again and
/// divided by the final sums. Weights are added in integer units, so that the order of the additions does not matter.
template <int D>
__global__ void __launch_bounds__(kTileThreads, min_blocks(D, kTileWarps))
    receive_tiles(AttentionCall call, const AttentionTile* tiles) {
  using Shape = TileShape<D, kTileWarps>;
  ReceivedShared<D>& shared = shared_memory<ReceivedShared<D>>();
  const AttentionTile tile = tiles[blockIdx.x];
  if (tile.rows == 0 || call.received[tile.sequence] == nullptr) return;  // the whole block
  const KvSlab slab = call.slabs[tile.sequence];
  const int kv_head = static_cast<int>(blockIdx.y) / call.parts;
  AttentionSum* received = call.received[tile.sequence] + static_cast<std::int64_t>(kv_head) * slab.capacity;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warp_rows = warp * 16;
  const Bf16* keys = reinterpret_cast<const Bf16*>(slab.keys) + static_cast<std::int64_t>(kv_head) * slab.capacity * D;
  const float scale = call.scale * kLog2e;

  const int first = tile.key_begin / kTileKeys * kTileKeys;
  load_stage<D>(shared.keys[0], keys, first, tile);
  copy_async_commit();
  const LaneRow own[2] = {lane_row(call, tile, warp_rows + lane / 4), lane_row(call, tile, warp_rows + lane / 4 + 8)};
  std::uint32_t q[Shape::kSteps][4];
  load_queries<D>(q, call, own);
  float logsum[2];
  for (int r = 0; r < 2; ++r) {
    logsum[r] = own[r].row < 0 ? 0.0f : call.logsum[static_cast<std::int64_t>(own[r].row) * call.heads + own[r].head];
  }

  int stage = 0;
  for (int block = first; block < tile.key_end; block += kTileKeys, stage ^= 1) {
    copy_async_wait<0>();
    sync_block();
    if (block + kTileKeys < tile.key_end) {
      load_stage<D>(shared.keys[stage ^ 1], keys, block + kTileKeys, tile);
      copy_async_commit();
    }
    float s[Shape::kScoreTiles][4];
    score_tiles<D, Shape>(s, q, shared.keys[stage], 0);
    mask_tiles(s, own, block, 1);  // only keys before the row; none for missing rows
#pragma unroll
    for (int n = 0; n < Shape::kScoreTiles; ++n) {
#pragma unroll
      for (int column = 0; column < 2; ++column) {
        std::uint32_t units = 0;  // of at most 64 rows: no more than 2^30
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          units += static_cast<std::uint32_t>(exp2_fast(fmaf(s[n][2 * r + column], scale, -logsum[r])) * kUnits + 0.5f);
        }
        units += shuffle_xor(units, 4);
        units += shuffle_xor(units, 8);
        units += shuffle_xor(units, 16);
        if (lane < 4 && units != 0) {
          atomic_add(received + block + n * 8 + lane * 2 + column, std::uint64_t{units});
        }
      }
    }
  }
}

template <int D>
void TileLaunches<D>::attend(Stream stream, const AttentionCall& call, const AttentionTile* narrow,
                             std::size_t narrow_count, const AttentionTile* wide, std::size_t wide_count) {
  const auto heads = static_cast<unsigned>(call.kv_heads * call.parts);
  if (wide_count > 0) {
    launch(stream, dim3(static_cast<unsigned>(wide_count), heads), kTileThreads, sizeof(TileShared<D>),
           attend_tiles<D, 4>, call, wide);
  }
  if (narrow_count > 0) {
    launch(stream, dim3(static_cast<unsigned>(narrow_count), heads), kTileThreads, sizeof(TileShared<D>),
           attend_tiles<D, 1>, call, narrow);
  }
}

template <int D>
void TileLaunches<D>::receive(Stream stream, const AttentionCall& call, const AttentionTile* wide,
                              std::size_t wide_count) {
  launch(stream, dim3(static_cast<unsigned>(wide_count), static_cast<unsigned>(call.kv_heads * call.parts)),
         kTileThreads, sizeof(ReceivedShared<D>), receive_tiles<D>, call, wide);
}

}  // namespace baton::cuda
