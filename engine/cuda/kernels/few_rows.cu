// SPDX-License-Identifier: Apache-2.0
// Products of few rows, as in decoding. Every weight is read once and used in few operations, so the number of bytes in
// flight decides the speed. A warp computes two outputs, and each lane loads four times sixteen bytes of both before it
// uses the first. The more rows, the likelier tensor cores are faster (few_rows_tensor.cu, cuBLASLt): products.cpp
// measures which.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarp = 32;
constexpr int kChunk = 8;    // elements of 16 bytes
constexpr int kOutputs = 2;  // outputs per warp
constexpr int kAhead = 4;    // chunks per output that a lane has in flight

template <int kRows, class Out>
__global__ void few_rows(Strided<Out> out,       // [T, N]
                         Strided<const Bf16> x,  // [T, C]
                         Strided<const Bf16> w,  // [N, C]
                         const float* bias, std::int64_t rows, std::int64_t n, std::int64_t c) {
  const std::int64_t warp = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  const std::int64_t first = warp * kOutputs;
  if (first >= n) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const Bf16* weights[kOutputs];
#pragma unroll
  for (int o = 0; o < kOutputs; ++o) weights[o] = w.row(first + o < n ? first + o : first);
  float sum[kRows][kOutputs] = {};
  const auto add = [&](std::int64_t at, const float(&weight)[kOutputs][kChunk]) {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (row >= rows) break;
      float value[kChunk];
      read<kChunk, true>(value, x.row(row) + at);
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sum[row][o] = fmaf(value[i], weight[o][i], sum[row][o]);
      }
    }
  };
  constexpr std::int64_t kStep = kWarp * kChunk;
  std::int64_t at = static_cast<std::int64_t>(lane) * kChunk;
  for (; at + (kAhead - 1) * kStep < c; at += kAhead * kStep) {
    float weight[kAhead][kOutputs][kChunk];
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
#pragma unroll
      for (int o = 0; o < kOutputs; ++o) read<kChunk, true>(weight[ahead][o], weights[o] + at + ahead * kStep);
    }
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) add(at + ahead * kStep, weight[ahead]);
  }
  for (; at < c; at += kStep) {
    float weight[kOutputs][kChunk];
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) read<kChunk, true>(weight[o], weights[o] + at);
    add(at, weight);
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    if (row >= rows) break;
#pragma unroll
    for (int o = 0; o < kOutputs; ++o) {
      const float total = warp_sum(sum[row][o]);
      if (lane == 0 && first + o < n)
        out.row(row)[first + o] = from_float<Out>(total + (bias != nullptr ? bias[first + o] : 0.0f));
    }
  }
}

bool is_aligned_16(const std::byte* data, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && stride % kChunk == 0;
}

}  // namespace

bool takes_few_rows(const Product& p) {
  return p.dtype == DType::bf16 && p.t >= 1 && p.t <= kFewRows && p.c % kChunk == 0 &&
         is_aligned_16(p.x, p.t > 1 ? p.x_stride : 0) && is_aligned_16(p.w, p.w_stride);
}

void launch_few_rows(Stream stream, const Product& p) {
  const dim3 grid(static_cast<unsigned>(blocks_of(p.n, kOutputs * (kThreads / kWarp))));
  const auto start = [&](auto rows) {
    with_type(p.out_dtype, [&](auto element) {
      using Out = decltype(element);
      launch(stream, grid, kThreads, 0, few_rows<decltype(rows)::value, Out>,
             Strided<Out>{static_cast<Out*>(p.out), p.out_stride},
             Strided<const Bf16>{reinterpret_cast<const Bf16*>(p.x), p.x_stride},
             Strided<const Bf16>{reinterpret_cast<const Bf16*>(p.w), p.w_stride}, p.bias, p.t, p.n, p.c);
    });
  };
  if (p.t == 1) return start(std::integral_constant<int, 1>());
  if (p.t == 2) return start(std::integral_constant<int, 2>());
  if (p.t <= 4) return start(std::integral_constant<int, 4>());
  start(std::integral_constant<int, 8>());
}

}  // namespace baton::cuda
