// SPDX-License-Identifier: Apache-2.0
// Root mean square norms of rows (alone, or fused with the residual addition before them) and of heads (q/k norm). Also
// scales rows to the RMS of others, and keeps their peaks. One block per row, one warp per head. The summation order of
// a row depends only on its width, so its result is bit for bit the same whatever other rows share the launch.
#include <algorithm>

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr int kVector = 4;
constexpr unsigned kWarp = 32;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kHeadWarps = 4;  // heads per block

struct NormShared {
  float of_warp[kMaxThreads / kWarp];  // the sum of each warp
};

/// Returns the sum over the block to every thread.
__device__ float block_sum(float value, NormShared& shared) {
  value = warp_sum(value);
  if (threadIdx.x % kWarp == 0) shared.of_warp[threadIdx.x / kWarp] = value;
  sync_block();
  float sum = 0.0f;
  for (unsigned warp = 0; warp < blockDim.x / kWarp; ++warp) sum += shared.of_warp[warp];
  return sum;
}

template <class To, bool kAligned, bool kAdd>
__global__ void norm_rows(Strided<To> out,             // [T, C]
                          Strided<float> x,            // [T, C]; set to x + delta if kAdd
                          Strided<const float> delta,  // [T, C]; read only if kAdd
                          const float* weight,         // [C]
                          std::int64_t cols, float eps) {
  NormShared& shared = shared_memory<NormShared>();
  float* row = x.row(blockIdx.x);
  const float* add = kAdd ? delta.row(blockIdx.x) : nullptr;
  To* to = out.row(blockIdx.x);
  constexpr int n = kAligned ? kVector : 1;
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * n;
  float squares = 0.0f;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * n; c < cols; c += step) {
    float a[n];
    read<n, kAligned>(a, row + c);
    if constexpr (kAdd) {
      float b[n];
      read<n, kAligned>(b, add + c);
      for (int i = 0; i < n; ++i) a[i] += b[i];
      write<n, kAligned>(row + c, a);
    }
    for (int i = 0; i < n; ++i) squares = fmaf(a[i], a[i], squares);
  }
  const float scale = 1.0f / sqrtf(block_sum(squares, shared) / static_cast<float>(cols) + eps);
  // No barrier: each thread reads only the columns that it wrote itself.
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * n; c < cols; c += step) {
    float a[n], w[n];
    read<n, kAligned>(a, row + c);
    read<n, kAligned>(w, weight + c);
    for (int i = 0; i < n; ++i) a[i] = a[i] * scale * w[i];
    write<n, kAligned>(to + c, a);
  }
}

__global__ void norm_heads(float* x,                                                       // [T, heads * width]
                           std::int64_t x_stride, std::int64_t heads, std::int64_t count,  // count: T * heads
                           const float* weight,                                            // [width]
                           std::int64_t width, float eps) {
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kHeadWarps + threadIdx.x / kWarp;
  if (own >= count) return;  // the same for all threads of a warp
  float* head = x + own / heads * x_stride + own % heads * width;
  float squares = 0.0f;
  for (std::int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) squares = fmaf(head[c], head[c], squares);
  const float scale = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(width) + eps);
  for (std::int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) head[c] = head[c] * scale * weight[c];
}

/// Returns the sum of function(row[c]) over the block to every thread.
template <class Function>
__device__ float row_sum(const float* row, std::int64_t cols, NormShared& shared, Function function) {
  float sum = 0.0f;
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) sum += function(row[c]);
  sum = block_sum(sum, shared);
  sync_block();  // the next sum overwrites `shared`, from which this one was read
  return sum;
}

/// Scales each row of x to the root mean square of the same row of `like`. `least`: minimum mean square of x.
__global__ void match_rows(Strided<float> x,           // [T, cols]
                           Strided<const float> like,  // [T, cols]
                           std::int64_t cols, float least) {
  NormShared& shared = shared_memory<NormShared>();
  float* row = x.row(blockIdx.x);
  const auto square = [](float value) { return value * value; };
  const auto n = static_cast<float>(cols);
  const float own = fmaxf(row_sum(row, cols, shared, square) / n, least);
  const float factor = sqrtf(row_sum(like.row(blockIdx.x), cols, shared, square) / n / own);
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) row[c] *= factor;
}

/// Replaces each value by its excess over mean + deviations * standard deviation of its row, or 0.
__global__ void peak_rows(Strided<float> x,  // [T, cols]
                          std::int64_t cols, float deviations) {
  NormShared& shared = shared_memory<NormShared>();
  float* row = x.row(blockIdx.x);
  const auto n = static_cast<float>(cols);
  const float mean = row_sum(row, cols, shared, [](float value) { return value; }) / n;
  const float variance =
      row_sum(row, cols, shared, [mean](float value) { return (value - mean) * (value - mean); }) / n;
  const float cut = mean + deviations * sqrtf(variance);
  for (std::int64_t c = threadIdx.x; c < cols; c += blockDim.x) row[c] = fmaxf(row[c] - cut, 0.0f);
}

unsigned threads_of(std::int64_t cols) {
  return static_cast<unsigned>(std::min<std::int64_t>(kMaxThreads, round_up(cols, kWarp)));
}

template <bool kAdd>
void launch_norm(Stream stream, TensorView out, TensorView x, ConstTensorView delta, const float* weight, float eps) {
  if (x.rows == 0 || x.cols == 0) return;
  const bool whole = is_aligned(out, kVector) && is_aligned(x, kVector) && (!kAdd || is_aligned(delta, kVector)) &&
                     reinterpret_cast<std::uintptr_t>(weight) % 16 == 0;
  const auto threads = static_cast<unsigned>(
      std::min<std::int64_t>(kMaxThreads, round_up(blocks_of(x.cols, whole ? kVector : 1), kWarp)));
  with_type(out.dtype, [&]<class To>(To) {
    with_flag(whole, [&](auto aligned) {
      launch(stream, dim3(static_cast<unsigned>(x.rows)), threads, sizeof(NormShared),
             norm_rows<To, decltype(aligned)::value, kAdd>, strided<To>(out), strided<float>(x), strided<float>(delta),
             weight, x.cols, eps);
    });
  });
}

}  // namespace

void launch_rms_norm(Stream stream, TensorView out, ConstTensorView x, const float* weight, float eps) {
  const TensorView only_read{const_cast<std::byte*>(x.data), x.dtype, x.rows, x.cols, x.stride};
  launch_norm<false>(stream, out, only_read, {}, weight, eps);
}

void launch_add_rms_norm(Stream stream, TensorView out, TensorView x, ConstTensorView delta, const float* weight,
                         float eps) {
  launch_norm<true>(stream, out, x, delta, weight, eps);
}

void launch_match_rms(Stream stream, TensorView x, ConstTensorView like, float least) {
  if (x.rows == 0 || x.cols == 0) return;
  launch(stream, dim3(static_cast<unsigned>(x.rows)), threads_of(x.cols), sizeof(NormShared), match_rows,
         strided<float>(x), strided<float>(like), x.cols, least);
}

void launch_keep_peaks(Stream stream, TensorView x, float deviations) {
  if (x.rows == 0 || x.cols == 0) return;
  launch(stream, dim3(static_cast<unsigned>(x.rows)), threads_of(x.cols), sizeof(NormShared), peak_rows,
         strided<float>(x), x.cols, deviations);
}

void launch_head_rms_norm(Stream stream, TensorView x, const float* weight, std::int64_t width, float eps) {
  const std::int64_t heads = x.cols / width, count = x.rows * heads;
  if (count == 0) return;
  launch(stream, dim3(static_cast<unsigned>(blocks_of(count, kHeadWarps))), kHeadWarps * kWarp, 0, norm_heads,
         elements<float>(x), x.stride, heads, count, weight, width, eps);
}

}  // namespace baton::cuda
