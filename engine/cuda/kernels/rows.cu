// SPDX-License-Identifier: Apache-2.0
// Row kernels without sums: copies with conversion (embedding, gather, scatter, weights), random weights, residual,
// gate. One block per row and 4 x kThreads columns. They are bound by memory, so each thread moves four neighbours at
// once.
#include "engine/backend/host_operations.h"
#include "engine/cuda/host/check.h"
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kVector = 4;

dim3 grid_of(std::int64_t rows, std::int64_t cols) {
  return {static_cast<unsigned>(rows), static_cast<unsigned>(blocks_of(cols, kThreads * kVector))};
}

/// Returns the first of the four columns of this thread.
__device__ __forceinline__ std::int64_t own_column() {
  return (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kVector;
}

template <class To, class From, bool kAligned>
__global__ void copy_rows(Strided<To> out,  // [.., out_cols]
                          std::int64_t out_cols,
                          const std::int32_t* out_index,  // [rows] or null
                          Strided<const From> in,         // [.., in_cols]
                          std::int64_t in_cols,
                          const std::int32_t* in_index) {  // [rows] or null
  const std::int64_t row = blockIdx.x;
  const std::int64_t c = own_column();
  if (c >= out_cols) return;
  To* to = out.row(out_index == nullptr ? row : out_index[row]) + c;
  const From* from = in.row(in_index == nullptr ? row : in_index[row]) + c;
  if (kAligned && c < in_cols) {  // the widths of aligned rows are multiples of kVector
    float values[kVector];
    read<kVector, kAligned>(values, from);
    write<kVector, kAligned>(to, values);
    return;
  }
  for (int i = 0; i < kVector && c + i < out_cols; ++i)
    to[i] = from_float<To>(c + i < in_cols ? to_float(from[i]) : 0.0f);
}

template <bool kAligned>
__global__ void add_rows(float* x,  // [T, cols]
                         std::int64_t x_stride,
                         const float* delta,  // [T, cols]
                         std::int64_t delta_stride, std::int64_t cols) {
  const std::int64_t c = own_column();
  if (c >= cols) return;
  float* to = x + blockIdx.x * x_stride + c;
  const float* from = delta + blockIdx.x * delta_stride + c;
  if constexpr (kAligned) {
    float a[kVector], b[kVector];
    read<kVector, true>(a, to);
    read<kVector, true>(b, from);
    for (int i = 0; i < kVector; ++i) a[i] += b[i];
    write<kVector, true>(to, a);
  } else {
    for (int i = 0; i < kVector && c + i < cols; ++i) to[i] += from[i];
  }
}

struct Silu {
  static __device__ __forceinline__ float of(float gate, float up, const ClampedGate& /*how*/) {
    return gate / (1.0f + expf(-gate)) * up;
  }
};
/// The tanh form: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)).
struct Gelu {
  static __device__ __forceinline__ float of(float gate, float up, const ClampedGate& /*how*/) {
    constexpr float kSlope = -1.5957691216f, kCubic = -0.0713548162726f;  // -2 sqrt(2 / pi), and that times 0.044715
    return gate / (1.0f + expf(gate * fmaf(gate * gate, kCubic, kSlope))) * up;
  }
};
struct ClampedSilu {
  static __device__ __forceinline__ float of(float gate, float up, const ClampedGate& how) {
    gate = fminf(gate, how.limit);
    up = fmaxf(fminf(up, how.limit), -how.limit);
    return (up + 1.0f) * (gate / (1.0f + expf(-how.slope * gate)));
  }
};

template <class Activation, class To, class From, bool kAligned>
__global__ void gate_rows(To* out,  // [T, F]
                          std::int64_t out_stride,
                          const From* gate_up,  // [T, 2 F]: gates, then ups
                          std::int64_t in_stride, std::int64_t cols, ClampedGate how) {
  const std::int64_t c = own_column();
  if (c >= cols) return;
  To* to = out + blockIdx.x * out_stride + c;
  const From* gates = gate_up + blockIdx.x * in_stride + c;
  const From* ups = gates + cols;
  if constexpr (kAligned) {
    float gate[kVector], up[kVector];
    read<kVector, true>(gate, gates);
    read<kVector, true>(up, ups);
    for (int i = 0; i < kVector; ++i) gate[i] = Activation::of(gate[i], up[i], how);
    write<kVector, true>(to, gate);
  } else {
    for (int i = 0; i < kVector && c + i < cols; ++i)
      to[i] = from_float<To>(Activation::of(to_float(gates[i]), to_float(ups[i]), how));
  }
}

__global__ void add_weighted_rows(float* x,  // [.., cols]
                                  std::int64_t x_stride,
                                  const float* in,  // [rows, cols]
                                  std::int64_t in_stride, std::int64_t cols,
                                  const std::int32_t* index,  // [rows]
                                  const float* weight) {      // [rows]
  const std::int64_t first = own_column();
  const float own = weight[blockIdx.x];
  float* to = x + index[blockIdx.x] * x_stride;
  const float* from = in + blockIdx.x * in_stride;
  for (std::int64_t c = first; c < first + kVector && c < cols; ++c) to[c] = fmaf(own, from[c], to[c]);
}

struct Scale {
  static __device__ __forceinline__ float of(float x, float factor) { return x * factor; }
};
struct SoftCap {
  static __device__ __forceinline__ float of(float x, float cap) { return cap * tanhf(x / cap); }
};

template <class Function>
__global__ void change_rows(float* x,  // [T, cols]
                            std::int64_t stride, std::int64_t cols, float parameter) {
  const std::int64_t first = own_column();
  float* row = x + blockIdx.x * stride;
  for (std::int64_t c = first; c < first + kVector && c < cols; ++c) row[c] = Function::of(row[c], parameter);
}

__global__ void mix_streams(Strided<float> out,           // [T, n width]
                            Strided<const float> x,       // [T, n width]
                            Strided<const float> in,      // [T, sources width]
                            Strided<const float> weight,  // [T, n sources]
                            std::int64_t cols, std::int64_t width, std::int64_t sources) {
  const std::int64_t first = own_column();
  const float *old = x.row(blockIdx.x), *from = in.row(blockIdx.x), *weights = weight.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  for (std::int64_t at = first; at < first + kVector && at < cols; ++at) {
    const std::int64_t j = at / width, c = at % width;
    float sum = 0.0f;
    for (std::int64_t i = 0; i < sources; ++i) sum = fmaf(weights[j * sources + i], from[i * width + c], sum);
    to[at] = old[at] + sum;
  }
}

__global__ void correct_streams(Strided<float> out,           // [T, n width]
                                Strided<const float> x,       // [T, n width]
                                Strided<const float> in,      // [T, width]
                                Strided<const float> weight,  // [T, n]
                                std::int64_t cols, std::int64_t width, std::int64_t active) {
  const std::int64_t first = own_column();
  const float *old = x.row(blockIdx.x), *from = in.row(blockIdx.x), *weights = weight.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  for (std::int64_t at = first; at < first + kVector && at < cols; ++at) {
    const std::int64_t c = at % width;
    to[at] = fmaf(weights[at / width], from[c] - old[active * width + c], old[at]);
  }
}

__global__ void scale_columns(Strided<float> out,      // [T, cols]
                              Strided<const float> x,  // [T, cols]
                              const float* weight,     // [cols]
                              std::int64_t cols) {
  const std::int64_t first = own_column();
  const float* from = x.row(blockIdx.x);
  float* to = out.row(blockIdx.x);
  for (std::int64_t c = first; c < first + kVector && c < cols; ++c) to[c] = from[c] * weight[c];
}

template <class To>
__global__ void random_rows(To* out,  // [rows, out_cols]
                            std::int64_t out_stride, std::int64_t out_cols, std::int64_t cols, std::uint64_t seed,
                            float deviation) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t first = own_column();
  for (std::int64_t c = first; c < first + kVector && c < out_cols; ++c) {
    const float value = c < cols ? random_weight(seed, static_cast<std::uint64_t>(row * cols + c), deviation) : 0.0f;
    out[row * out_stride + c] = from_float<To>(to_float(to_bf16(value)));
  }
}

template <class To, class From>
void copy_rows_of(Stream stream, TensorView out, const std::int32_t* out_index, ConstTensorView in,
                  const std::int32_t* in_index, std::int64_t rows) {
  with_flag(is_aligned(out, kVector) && is_aligned(in, kVector), [&](auto aligned) {
    launch(stream, grid_of(rows, out.cols), kThreads, 0, copy_rows<To, From, decltype(aligned)::value>,
           strided<To>(out), out.cols, out_index, strided<From>(in), in.cols, in_index);
  });
}

template <class Activation>
void launch_gate(Stream stream, TensorView out, ConstTensorView gate_up, const ClampedGate& how = {}) {
  if (out.rows == 0 || out.cols == 0) return;
  with_type(out.dtype, [&]<class To>(To) {
    with_type(gate_up.dtype, [&]<class From>(From) {
      with_flag(is_aligned(out, kVector) && is_aligned(gate_up, kVector), [&](auto aligned) {
        launch(stream, grid_of(out.rows, out.cols), kThreads, 0,
               gate_rows<Activation, To, From, decltype(aligned)::value>, elements<To>(out), out.stride,
               elements<From>(gate_up), gate_up.stride, out.cols, how);
      });
    });
  });
}

template <class Function>
void launch_change(Stream stream, TensorView x, float parameter) {
  if (x.rows == 0 || x.cols == 0) return;
  launch(stream, grid_of(x.rows, x.cols), kThreads, 0, change_rows<Function>, elements<float>(x), x.stride, x.cols,
         parameter);
}

}  // namespace

cudaError_t look_up_kernel() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&add_rows<true>));
}

void launch_copy_rows(Stream stream, TensorView out, const std::int32_t* out_index, ConstTensorView in,
                      const std::int32_t* in_index, std::int64_t rows) {
  if (rows == 0 || out.cols == 0) return;
  with_type(out.dtype, [&]<class To>(To) {
    if (in.dtype == DType::f16) {
      copy_rows_of<To, Half>(stream, out, out_index, in, in_index, rows);
    } else {
      with_type(in.dtype,
                [&]<class From>(From) { copy_rows_of<To, From>(stream, out, out_index, in, in_index, rows); });
    }
  });
}

void launch_random_rows(Stream stream, TensorView out, std::int64_t cols, std::uint64_t seed, float deviation) {
  if (out.rows == 0 || out.cols == 0) return;
  with_type(out.dtype, [&]<class To>(To) {
    launch(stream, grid_of(out.rows, out.cols), kThreads, 0, random_rows<To>, elements<To>(out), out.stride, out.cols,
           cols, seed, deviation);
  });
}

void launch_add(Stream stream, TensorView x, ConstTensorView delta) {
  if (x.rows == 0 || x.cols == 0) return;
  with_flag(is_aligned(x, kVector) && is_aligned(delta, kVector), [&](auto aligned) {
    launch(stream, grid_of(x.rows, x.cols), kThreads, 0, add_rows<decltype(aligned)::value>, elements<float>(x),
           x.stride, elements<float>(delta), delta.stride, x.cols);
  });
}

void launch_silu_mul(Stream stream, TensorView out, ConstTensorView gate_up, const ClampedGate& clamped) {
  if (clamped.limit > 0.0f) return launch_gate<ClampedSilu>(stream, out, gate_up, clamped);
  launch_gate<Silu>(stream, out, gate_up);
}

void launch_gelu_mul(Stream stream, TensorView out, ConstTensorView gate_up) {
  launch_gate<Gelu>(stream, out, gate_up);
}

void launch_add_weighted(Stream stream, TensorView x, ConstTensorView in, const std::int32_t* index,
                         const float* weight) {
  if (in.rows == 0 || in.cols == 0) return;
  launch(stream, grid_of(in.rows, in.cols), kThreads, 0, add_weighted_rows, elements<float>(x), x.stride,
         elements<float>(in), in.stride, in.cols, index, weight);
}

void launch_scale(Stream stream, TensorView x, float factor) { launch_change<Scale>(stream, x, factor); }

void launch_soft_cap(Stream stream, TensorView x, float cap) { launch_change<SoftCap>(stream, x, cap); }

void launch_mix(Stream stream, TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                std::int64_t width) {
  if (out.rows == 0 || out.cols == 0) return;
  launch(stream, grid_of(out.rows, out.cols), kThreads, 0, mix_streams, strided<float>(out), strided<float>(x),
         strided<float>(in), strided<float>(weight), out.cols, width, in.cols / width);
}

void launch_correct(Stream stream, TensorView out, ConstTensorView x, ConstTensorView in, ConstTensorView weight,
                    std::int32_t active) {
  if (out.rows == 0 || out.cols == 0) return;
  launch(stream, grid_of(out.rows, out.cols), kThreads, 0, correct_streams, strided<float>(out), strided<float>(x),
         strided<float>(in), strided<float>(weight), out.cols, in.cols, std::int64_t{active});
}

void launch_scale_columns(Stream stream, TensorView out, ConstTensorView x, const float* weight) {
  if (out.rows == 0 || out.cols == 0) return;
  launch(stream, grid_of(out.rows, out.cols), kThreads, 0, scale_columns, strided<float>(out), strided<float>(x),
         weight, out.cols);
}

}  // namespace baton::cuda
