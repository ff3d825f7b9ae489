// SPDX-License-Identifier: Apache-2.0
// Attention of any cache and head width, in fp32 throughout: one block per row and query head, keys in chunks of one
// per thread, online softmax. For fp32 caches and head widths without tiles; written for correctness before speed.
#include <cmath>

#include "engine/cuda/attention/attention.h"
#include "engine/cuda/kernels/vectors.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kChunk = 8;
constexpr int kMaxWidth = 256;
constexpr int kColumns = kMaxWidth / kThreads;  // output columns per thread

struct RowShared {
  float q[kMaxWidth];
  float weight[kThreads];  // of the keys of the chunk
  float of_warp[2][kThreads / 32];
};

__device__ float block_max(float value, RowShared& shared) {
  value = warp_max(value);
  if (threadIdx.x % 32 == 0) shared.of_warp[0][threadIdx.x / 32] = value;
  sync_block();
  float highest = shared.of_warp[0][0];
  for (int w = 1; w < kThreads / 32; ++w) highest = fmaxf(highest, shared.of_warp[0][w]);
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
  for (int c = thread; c < width; c += kThreads) shared.q[c] = call.q[row * call.q_stride + head * width + c];
  const int begin = rows.key_begin[row], end = rows.position[row] + 1;
  float highest = -INFINITY, sum = 0.0f, out[kColumns] = {};
  for (int chunk = begin; chunk < end; chunk += kThreads) {
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
    const int count = end - chunk < kThreads ? end - chunk : kThreads;
    for (int i = 0; i < count; ++i) {
      sum += shared.weight[i];
      for (int c = 0; c < kColumns; ++c) {
        const int column = thread + c * kThreads;
        if (column >= width) continue;
        out[c] =
            fmaf(shared.weight[i], to_float(values[static_cast<std::int64_t>(chunk + i) * width + column]), out[c]);
      }
    }
  }
  for (int c = 0; c < kColumns; ++c) {
    const int column = thread + c * kThreads;
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
  for (int key = begin + thread; key < end - 1; key += kThreads) {
    const float score = call.scale * score_of(shared, keys + static_cast<std::int64_t>(key) * width, width);
    atomic_add(received + key, static_cast<std::uint64_t>(expf(score - highest) / sum * kUnits + 0.5f));
  }
}

}  // namespace

void launch_attention_rows(Stream stream, const AttentionCall& call, const KvShape& shape, const DeviceRows& rows) {
  if (rows.count == 0) return;
  with_type(shape.dtype, [&]<class Cache>(Cache) {
    launch(stream, dim3(static_cast<unsigned>(rows.count), static_cast<unsigned>(call.heads)), kThreads,
           sizeof(RowShared), attend_rows<Cache>, call, shape.head_dim, rows);
  });
}

}  // namespace baton::cuda
