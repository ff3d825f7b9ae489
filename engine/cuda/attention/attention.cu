// SPDX-License-Identifier: Apache-2.0
// Selects the tile kernels of a call, merges split rows, and adds up attention received for narrow tiles.
#include <cmath>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/attention/attention_tiles.cuh"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr unsigned kThreads = 128;

/// One block per split row and head. Slots of a row that saw no key weigh nothing.
__global__ void merge_slots(AttentionCall call, const MergeRow* merges,  // [gridDim.x]
                            int head_dim) {
  const MergeRow merge = merges[blockIdx.x];
  if (merge.splits == 0) return;
  const int head = static_cast<int>(blockIdx.y);
  const auto slot = [&](int split) {
    return static_cast<std::int64_t>(merge.partial + split * merge.stride) * call.heads + head;
  };
  float high = -INFINITY;
  for (int s = 0; s < merge.splits; ++s) high = fmaxf(high, call.partial_max[slot(s)]);
  float total = 0.0f;
  for (int s = 0; s < merge.splits; ++s) {
    total = fmaf(call.partial_sum[slot(s)], exp2_fast(call.partial_max[slot(s)] - high), total);
  }
  for (int c = static_cast<int>(threadIdx.x); c < head_dim; c += static_cast<int>(kThreads)) {
    float value = 0.0f;
    for (int s = 0; s < merge.splits; ++s) {
      value = fmaf(call.partial[slot(s) * head_dim + c], exp2_fast(call.partial_max[slot(s)] - high), value);
    }
    const std::int64_t at = merge.row * call.out_stride + static_cast<std::int64_t>(head) * head_dim + c;
    if (call.out_bf16) {
      static_cast<Bf16*>(call.out)[at] = to_bf16(value / total);
    } else {
      static_cast<float*>(call.out)[at] = value / total;
    }
  }
  if (threadIdx.x == 0 && call.logsum != nullptr) {
    call.logsum[static_cast<std::int64_t>(merge.row) * call.heads + head] = high + log2f(total);
  }
}

/// Adds to `received` the weights that the rows of a narrow tile give to earlier keys, from the stored scores, with one
/// thread per key. It reads 4 bytes per query head where the key itself has 2 D. Weights are added in integer units, so
/// that the order of the additions does not matter.
__global__ void receive_scores(AttentionCall call, const AttentionTile* tiles) {  // [gridDim.x]
  const AttentionTile tile = tiles[blockIdx.x];
  if (tile.rows == 0 || call.received[tile.sequence] == nullptr) return;  // the whole block
  const KvSlab slab = call.slabs[tile.sequence];
  const int kv_head = static_cast<int>(blockIdx.y) / call.parts;
  AttentionSum* received = call.received[tile.sequence] + static_cast<std::int64_t>(kv_head) * slab.capacity;
  const float* scores = scores_of(call, tile);
  const int packed_rows = tile.rows * call.part_heads;
  const int first = tile.key_begin / kTileKeys * kTileKeys;
  for (int key = tile.key_begin + static_cast<int>(threadIdx.x); key < tile.key_end;
       key += static_cast<int>(kThreads)) {
    const float* column = scores + static_cast<std::int64_t>((key - first) / kTileKeys) * packed_rows * kTileKeys +
                          (key - first) % kTileKeys;
    std::uint32_t units = 0;  // of at most 16 rows
    for (int packed = 0; packed < packed_rows; ++packed) {
      const LaneRow own = lane_row(call, tile, packed);
      if (own.row < 0 || key >= own.key_end - 1) continue;
      const float logsum = call.logsum[static_cast<std::int64_t>(own.row) * call.heads + own.head];
      units += static_cast<std::uint32_t>(exp2_fast(column[packed * kTileKeys] - logsum) * kUnits + 0.5f);
    }
    if (units != 0) atomic_add(received + key, std::uint64_t{units});
  }
}

/// Calls fn with the head width as a type, for a width that has tiles.
template <class Fn>
bool with_width(std::int32_t head_dim, const Fn& fn) {
  switch (head_dim) {
    case 32:
      fn(std::integral_constant<int, 32>());
      return true;
    case 64:
      fn(std::integral_constant<int, 64>());
      return true;
    case 80:
      fn(std::integral_constant<int, 80>());
      return true;
    case 96:
      fn(std::integral_constant<int, 96>());
      return true;
    case 128:
      fn(std::integral_constant<int, 128>());
      return true;
    default:
      return false;
  }
}

}  // namespace

bool has_tiles(const KvShape& shape) {
  return shape.dtype == DType::bf16 && with_width(shape.head_dim, [](auto) {});
}

void launch_attention_tiles(Stream stream, const AttentionCall& call, std::int32_t head_dim,
                            const AttentionTile* narrow, std::size_t narrow_count, const AttentionTile* wide,
                            std::size_t wide_count) {
  with_width(head_dim, [&](auto width) {
    TileLaunches<decltype(width)::value>::attend(stream, call, narrow, narrow_count, wide, wide_count);
  });
}

void launch_attention_received(Stream stream, const AttentionCall& call, std::int32_t head_dim,
                               const AttentionTile* narrow, std::size_t narrow_count, const AttentionTile* wide,
                               std::size_t wide_count) {
  if (wide_count > 0) {
    with_width(head_dim,
               [&](auto width) { TileLaunches<decltype(width)::value>::receive(stream, call, wide, wide_count); });
  }
  if (narrow_count > 0) {
    launch(stream, dim3(static_cast<unsigned>(narrow_count), static_cast<unsigned>(call.kv_heads * call.parts)),
           kThreads, 0, receive_scores, call, narrow);
  }
}

void launch_attention_merge(Stream stream, const AttentionCall& call, std::int32_t head_dim, const MergeRow* merges,
                            std::size_t count) {
  if (count == 0) return;
  launch(stream, dim3(static_cast<unsigned>(count), static_cast<unsigned>(call.heads)), kThreads, 0, merge_slots, call,
         merges, head_dim);
}

}  // namespace baton::cuda
