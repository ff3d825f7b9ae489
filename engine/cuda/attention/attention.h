// SPDX-License-Identifier: Apache-2.0
// The launches of attention. There are two families: tiles on the tensor cores (attention_tiles.cuh; bf16 caches of the
// usual head widths), and one block per row and head (attention_rows.cu; all other caches, in fp32 throughout).
#pragma once

#include <span>

#include "engine/backend/operations.h"
#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/kernels/kernels.h"

namespace baton::cuda {

/// The arguments of one call. All pointers are device memory; strides are in elements.
struct AttentionCall {
  const KvSlab* slabs = nullptr;  // [number of sequences]
  const float* q = nullptr;       // [T, H * D]
  std::int64_t q_stride = 0;
  void* out = nullptr;  // [T, H * D], f32 or bf16
  std::int64_t out_stride = 0;
  std::int32_t out_bf16 = 0;  // not 0: bf16
  std::int32_t heads = 0, kv_heads = 0, part_heads = 0, parts = 0;
  float scale = 0;                          // no padding up to here: calls are compared as bytes (launch_log.h)
  AttentionSum* const* received = nullptr;  // [number of sequences], each null or [K, capacity]; or null
  // Only for tiles:
  const TileRow* rows = nullptr;  // sorted
  float* partial = nullptr;       // [slots, H, D]
  float* partial_max = nullptr;   // [slots, H], of scores times scale times log2(e)
  float* partial_sum = nullptr;   // [slots, H]
  float* scores = nullptr;        // of narrow tiles, see launch_attention_received; null: not recorded
  float* logsum = nullptr;        // [T, H] log2 of the sum of exponentials, or null: not wanted
};

/// True when tiles support the cache's type and head width.
bool has_tiles(const KvShape& shape);

void launch_attention_tiles(Stream stream, const AttentionCall& call, std::int32_t head_dim,
                            const AttentionTile* narrow, std::size_t narrow_count, const AttentionTile* wide,
                            std::size_t wide_count);
/// Merges the slots of split rows into their outputs.
void launch_attention_merge(Stream stream, const AttentionCall& call, std::int32_t head_dim, const MergeRow* merges,
                            std::size_t count);
/// Adds the weights that rows give to earlier keys to `received`, from logsum; call it after the outputs are computed.
/// Wide tiles compute their scores again. Narrow tiles have stored them, for each kv head part and tile
/// [key block][packed row][kKeyBlock], times scale times log2(e), and minus infinity where the row does not see the
/// key.
void launch_attention_received(Stream stream, const AttentionCall& call, std::int32_t head_dim,
                               const AttentionTile* narrow, std::size_t narrow_count, const AttentionTile* wide,
                               std::size_t wide_count);

/// Supports any cache and any head width, with one block per row and head. Also adds to `received`.
void launch_attention_rows(Stream stream, const AttentionCall& call, const KvShape& shape, const DeviceRows& rows);

}  // namespace baton::cuda
