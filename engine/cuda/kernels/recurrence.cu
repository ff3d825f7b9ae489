// SPDX-License-Identifier: Apache-2.0
// Layers with a state (engine/backend/recurrence.h). A thread takes one column of a state, which depends on no other
// column, through all rows of a sequence in their order, so results and states have the same bits however rows are
// split into calls.
#include <algorithm>

#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kConvThreads = 128;
constexpr unsigned kMaxThreads = 256;
constexpr unsigned kUnitWarps = 4;  // heads per block

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ __forceinline__ float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

unsigned threads_for(std::int64_t columns) {
  return static_cast<unsigned>(std::min<std::int64_t>(kMaxThreads, round_up(columns, kWarp)));
}

/// One block for each sequence (x) and kConvThreads columns (y). out, x [T, cols]
__global__ void convolve_columns(Strided<float> out, Strided<const float> x, std::int64_t cols, DeviceConv weights,
                                 DeviceStates states) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kConvThreads + threadIdx.x;
  if (c >= cols) return;
  const std::int32_t before = weights.length - 1;
  for (std::int32_t r = states.chains[blockIdx.x]; r < states.chains[blockIdx.x + 1]; ++r) {
    const DeviceRun run = states.runs[r];
    const std::int32_t count = run.end - run.begin;
    const auto input = [&](std::int32_t at) {
      if (at >= 0) return x.row(states.rows[run.begin + at])[c];
      return run.from == nullptr ? 0.0f : run.from[states.offset + (before + at) * cols + c];
    };
    for (std::int32_t i = 0; i < count; ++i) {
      float sum = weights.bias == nullptr ? 0.0f : weights.bias[c];
      for (std::int32_t j = 0; j <= before; ++j) sum = fmaf(weights.taps[j * cols + c], input(i - before + j), sum);
      out.row(states.rows[run.begin + i])[c] = weights.silu != 0 ? sum * sigmoid(sum) : sum;
    }
    for (std::int32_t j = 0; j < before; ++j) run.to[states.offset + j * cols + c] = input(count - before + j);
  }
}

/// Queries and keys of length 1, queries divided by sqrt(width). One warp for each row of `rows` and head.
__global__ void unit_heads(float* out,                                // [n, heads * width]
                           Strided<const float> x,                    // [T, ..]
                           const std::int32_t* rows,                  // [n]
                           std::int64_t heads,                        // of queries and of keys
                           std::int64_t width, std::int64_t count) {  // count: n * heads
  const std::int64_t own = static_cast<std::int64_t>(blockIdx.x) * kUnitWarps + threadIdx.x / kWarp;
  if (own >= count) return;  // a whole warp
  const std::int64_t head = own % heads;
  const float* from = x.row(rows[own / heads]) + head * width;
  float squares = 0.0f;
  for (std::int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) squares = fmaf(from[c], from[c], squares);
  const float scale = head < heads / 2 ? 1.0f / sqrtf(static_cast<float>(width)) : 1.0f;
  const float factor = scale / sqrtf(warp_sum(squares) + 1e-6f);
  for (std::int64_t c = threadIdx.x % kWarp; c < width; c += kWarp) out[own * width + c] = from[c] * factor;
}

/// One block for each sequence (x) and value head (y). out, values [T, heads * dv]; write, decay [T, heads]
__global__ void delta_columns(Strided<float> out, Strided<const float> values, Strided<const float> write,
                              Strided<const float> decay, DeviceDelta weights, DeltaKernelShape shape,
                              DeviceStates states) {
  const std::int64_t head = blockIdx.y, dk = shape.key_dim, dv = shape.value_dim;
  const std::int64_t key_head =
      shape.tiled != 0 ? head % shape.key_heads : head / (shape.value_heads / shape.key_heads);
  for (std::int64_t n = threadIdx.x; n < dv; n += blockDim.x) {
    const std::int64_t at = states.offset + head * dk * dv + n;
    for (std::int32_t r = states.chains[blockIdx.x]; r < states.chains[blockIdx.x + 1]; ++r) {
      const DeviceRun run = states.runs[r];
      float* column = run.to + at;
      const float* old = run.from == nullptr ? nullptr : run.from + at;
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = states.rows[i];
        const float* q = weights.keys + (std::int64_t{i} * 2 * shape.key_heads + key_head) * dk;
        const float* k = q + shape.key_heads * dk;
        const float kept = expf(weights.rate[head] * softplus(decay.row(t)[head] + weights.bias[head]));
        float known = 0.0f, result = 0.0f;
        for (std::int64_t m = 0; m < dk; ++m) {
          const float value = old == nullptr ? 0.0f : old[m * dv] * kept;
          column[m * dv] = value;
          known = fmaf(k[m], value, known);
        }
        const float update = sigmoid(write.row(t)[head]) * (values.row(t)[head * dv + n] - known);
        for (std::int64_t m = 0; m < dk; ++m) {
          const float value = fmaf(k[m], update, column[m * dv]);
          column[m * dv] = value;
          result = fmaf(q[m], value, result);
        }
        out.row(t)[head * dv + n] = result;
        old = column;
      }
    }
  }
}

/// One block for each sequence (x) and head (y). out [T, heads * P], xbc [T, heads * P + 2 groups * N], step [T, heads]
__global__ void scan_columns(Strided<float> out, Strided<const float> xbc, Strided<const float> step,
                             DeviceScan weights, ScanKernelShape shape, DeviceStates states) {
  const std::int64_t head = blockIdx.y, width = shape.head_dim, count = shape.state;
  const std::int64_t group = head / (shape.heads / shape.groups);
  for (std::int64_t p = threadIdx.x; p < width; p += blockDim.x) {
    const std::int64_t at = states.offset + head * count * width + p;
    for (std::int32_t r = states.chains[blockIdx.x]; r < states.chains[blockIdx.x + 1]; ++r) {
      const DeviceRun run = states.runs[r];
      float* column = run.to + at;
      const float* old = run.from == nullptr ? nullptr : run.from + at;
      for (std::int32_t i = run.begin; i < run.end; ++i) {
        const std::int32_t t = states.rows[i];
        const float* row = xbc.row(t);
        const float* b = row + shape.heads * width + group * count;
        const float* c = b + shape.groups * count;
        const float x = row[head * width + p];
        const float length =
            fminf(fmaxf(softplus(step.row(t)[head] + weights.bias[head]), weights.least), weights.most);
        const float kept = expf(weights.rate[head] * length);
        float result = weights.skip[head] * x;
        for (std::int64_t n = 0; n < count; ++n) {
          const float before = old == nullptr ? 0.0f : old[n * width] * kept;
          const float value = fmaf(b[n] * length, x, before);
          column[n * width] = value;
          result = fmaf(c[n], value, result);
        }
        out.row(t)[head * width + p] = result;
        old = column;
      }
    }
  }
}

__global__ void multiply_rows(float* x, std::int64_t x_stride, const float* by, std::int64_t by_stride,
                              std::int64_t cols, std::int32_t function) {
  const std::int64_t c = static_cast<std::int64_t>(blockIdx.y) * kConvThreads + threadIdx.x;
  if (c >= cols) return;
  const float gate = by[blockIdx.x * by_stride + c];
  const float factor = function == 0   ? gate
                       : function == 3 ? fmaxf(gate, 0.0f)
                       : function == 1 ? sigmoid(gate)
                                       : gate * sigmoid(gate);
  x[blockIdx.x * x_stride + c] *= factor;
}

dim3 conv_grid(std::int64_t rows, std::int64_t cols) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>(blocks_of(cols, kConvThreads))};
}

}  // namespace

void launch_convolve(Stream stream, TensorView out, ConstTensorView x, const DeviceConv& weights,
                     const DeviceStates& states) {
  if (states.sequences == 0 || x.cols == 0) return;
  launch(stream, conv_grid(states.sequences, x.cols), kConvThreads, 0, convolve_columns, strided<float>(out),
         strided<float>(x), x.cols, weights, states);
}

void launch_delta_rule(Stream stream, TensorView out, const DeltaRows& in, const DeltaKernelShape& shape,
                       const DeviceDelta& weights, const DeviceStates& states) {
  if (states.sequences == 0) return;
  const std::int64_t heads = 2 * std::int64_t{shape.key_heads}, count = states.count * heads;
  const ConstTensorView qkv = in.qkv;
  launch(stream, dim3(static_cast<unsigned>(blocks_of(count, kUnitWarps))), kUnitWarps * kWarp, 0, unit_heads,
         weights.keys, strided<float>(qkv), states.rows, heads, static_cast<std::int64_t>(shape.key_dim), count);
  launch(stream, dim3(static_cast<unsigned>(states.sequences), static_cast<unsigned>(shape.value_heads)),
         threads_for(shape.value_dim), 0, delta_columns, strided<float>(out),
         strided<float>(qkv.col_range(heads * shape.key_dim, qkv.cols)), strided<float>(in.write),
         strided<float>(in.decay), weights, shape, states);
}

void launch_scan(Stream stream, TensorView out, const ScanRows& in, const ScanKernelShape& shape,
                 const DeviceScan& weights, const DeviceStates& states) {
  if (states.sequences == 0) return;
  launch(stream, dim3(static_cast<unsigned>(states.sequences), static_cast<unsigned>(shape.heads)),
         threads_for(shape.head_dim), 0, scan_columns, strided<float>(out), strided<float>(in.xbc),
         strided<float>(in.step), weights, shape, states);
}

void launch_multiply(Stream stream, TensorView x, ConstTensorView by, GateFunction function) {
  if (x.rows == 0 || x.cols == 0) return;
  launch(stream, conv_grid(x.rows, x.cols), kConvThreads, 0, multiply_rows, elements<float>(x), x.stride,
         elements<float>(by), by.stride, x.cols, static_cast<std::int32_t>(function));
}

}  // namespace baton::cuda
