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
  const float sink = sink_of(call, head);
  high = fmaxf(high, sink);
  float total = exp2_fast(sink - high);
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

// Attention of any cache and head width, in fp32 throughout: one block per row and query head, keys in chunks of one
// per thread, online softmax. For fp32 caches and head widths without tiles; written for correctness before speed.

namespace {

constexpr int kRowThreads = 128;
constexpr int kChunk = 8;
constexpr int kMaxWidth = kMaxHeadDim;
constexpr int kColumns = kMaxWidth / kRowThreads;  // output columns per thread

struct RowShared {
  float q[kMaxWidth];
  float weight[kRowThreads];  // of the keys of the chunk
  float of_warp[2][kRowThreads / 32];
};

__device__ float block_max(float value, RowShared& shared) {
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) shared.of_warp[0][threadIdx.x / 32] = value;
  sync_block();
  float highest = shared.of_warp[0][0];
  for (int w = 1; w < kRowThreads / 32; ++w) highest = fmaxf(highest, shared.of_warp[0][w]);
  return highest;
}

template <class Cache>
__device__ __forceinline__ float score_of(const RowShared& shared, const Cache* key, int width) {
  float score = 0.0f;
  for (int c = 0; c < width; c += kChunk) {
    float part[kChunk];
    read<kChunk, true>(part, key + c);
    for (int i = 0; i < kChunk; ++i) score = fmaf(shared.q[c + i], part[i], score);
  }
  return score;
}

template <class Cache>
__global__ void attend_rows(AttentionCall call, int width, DeviceRows rows) {
  RowShared& shared = shared_memory<RowShared>();
  const int row = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int thread = static_cast<int>(threadIdx.x);
  const int kv_head = head / (call.heads / call.kv_heads);
  const KvSlab slab = call.slabs[rows.sequence[row]];
  const Cache* keys =
      reinterpret_cast<const Cache*>(slab.keys) + static_cast<std::int64_t>(kv_head) * slab.capacity * width;
  const Cache* values =
      reinterpret_cast<const Cache*>(slab.values) + static_cast<std::int64_t>(kv_head) * slab.capacity * width;
  for (int c = thread; c < width; c += kRowThreads) shared.q[c] = call.q[row * call.q_stride + head * width + c];
  const int begin = rows.key_begin[row], end = rows.position[row] + 1;
  float highest = call.sinks == nullptr ? -INFINITY : call.sinks[head];
  float sum = call.sinks == nullptr ? 0.0f : 1.0f, out[kColumns] = {};
  for (int chunk = begin; chunk < end; chunk += kRowThreads) {
    const int key = chunk + thread;
    sync_block();  // the queries are loaded; the last chunk's weights have been read
    const float score =
        key < end ? call.scale * score_of(shared, keys + static_cast<std::int64_t>(key) * width, width) : -INFINITY;
    const float now = fmaxf(highest, block_max(score, shared));
    const float shrink = expf(highest - now);
    highest = now;
    shared.weight[thread] = expf(score - now);
    sync_block();
    sum *= shrink;
    for (int i = 0; i < kColumns; ++i) out[i] *= shrink;
    const int count = end - chunk < kRowThreads ? end - chunk : kRowThreads;
    for (int i = 0; i < count; ++i) {
      sum += shared.weight[i];
      for (int c = 0; c < kColumns; ++c) {
        const int column = thread + c * kRowThreads;
        if (column >= width) continue;
        out[c] =
            fmaf(shared.weight[i], to_float(values[static_cast<std::int64_t>(chunk + i) * width + column]), out[c]);
      }
    }
  }
  for (int c = 0; c < kColumns; ++c) {
    const int column = thread + c * kRowThreads;
    if (column >= width) continue;
    const std::int64_t at = row * call.out_stride + static_cast<std::int64_t>(head) * width + column;
    if (call.out_bf16) {
      static_cast<Bf16*>(call.out)[at] = to_bf16(out[c] / sum);
    } else {
      static_cast<float*>(call.out)[at] = out[c] / sum;
    }
  }
  if (call.received == nullptr || call.received[rows.sequence[row]] == nullptr) return;
  AttentionSum* received = call.received[rows.sequence[row]] + static_cast<std::int64_t>(kv_head) * slab.capacity;
  constexpr float kUnits = 1 << 24;
  for (int key = begin + thread; key < end - 1; key += kRowThreads) {
    const float score = call.scale * score_of(shared, keys + static_cast<std::int64_t>(key) * width, width);
    atomic_add(received + key, static_cast<std::uint64_t>(expf(score - highest) / sum * kUnits + 0.5f));
  }
}

}  // namespace

void launch_attention_rows(Stream stream, const AttentionCall& call, const KvShape& shape, const DeviceRows& rows) {
  if (rows.count == 0) return;
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    launch(stream, dim3(static_cast<unsigned>(rows.count), static_cast<unsigned>(call.heads)), kRowThreads,
           sizeof(RowShared), attend_rows<Cache>, call, shape.head_dim, rows);
  });
}

}  // namespace baton::cuda
