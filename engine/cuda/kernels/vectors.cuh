// SPDX-License-Identifier: Apache-2.0
// Reads and writes several neighbouring elements at once, as 16-byte (or 8-byte) accesses where they are aligned.
#pragma once

#include <cstdint>

#include "engine/backend/backend.h"
#include "engine/cuda/kernels/simt.cuh"

namespace baton::cuda {

/// The bits of an f16; kernels only read f16.
struct Half {
  std::uint16_t bits;
};
__device__ inline float to_float(Half value) { return half_to_float(value.bits); }

__device__ inline std::uint32_t bits_of(float value) {
  std::uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
__device__ inline float float_of(std::uint32_t bits) {
  float value = 0.0f;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

template <class T>
__device__ __forceinline__ T from_float(float value) {
  if constexpr (sizeof(T) == 2) {
    return to_bf16(value);
  } else {
    return value;
  }
}

/// out[0, N) = in[0, N). kAligned: the address is a multiple of N elements or of 16 bytes, whichever is less.
template <int N, bool kAligned, class T>
__device__ __forceinline__ void read(float (&out)[N], const T* in) {
  if constexpr (!kAligned) {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = to_float(in[i]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(in + i);
      out[i] = four.x, out[i + 1] = four.y, out[i + 2] = four.z, out[i + 3] = four.w;
    }
  } else {
    std::uint32_t pairs[N / 2];
    if constexpr (N == 8) {
      const uint4 all = *reinterpret_cast<const uint4*>(in);
      pairs[0] = all.x, pairs[1] = all.y, pairs[2] = all.z, pairs[3] = all.w;
    } else {
      const uint2 all = *reinterpret_cast<const uint2*>(in);
      pairs[0] = all.x, pairs[1] = all.y;
    }
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = to_float(T{static_cast<std::uint16_t>(pairs[i / 2] >> (i % 2 * 16))});
  }
}

template <int N, bool kAligned, class T>
__device__ __forceinline__ void write(T* out, const float (&in)[N]) {
  if constexpr (!kAligned) {
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = from_float<T>(in[i]);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      *reinterpret_cast<float4*>(out + i) = float4{in[i], in[i + 1], in[i + 2], in[i + 3]};
    }
  } else if constexpr (N == 8) {
    *reinterpret_cast<uint4*>(out) =
        uint4{pack_bf16(in[0], in[1]), pack_bf16(in[2], in[3]), pack_bf16(in[4], in[5]), pack_bf16(in[6], in[7])};
  } else {
    *reinterpret_cast<uint2*>(out) = uint2{pack_bf16(in[0], in[1]), pack_bf16(in[2], in[3])};
  }
}

/// Returns the sum over the warp to every lane.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
__device__ __forceinline__ double warp_sum(double value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// Host code that selects the kernel for a view.

/// True when rows of the view can be read n elements at a time.
inline bool is_aligned(const ConstTensorView& view, std::int64_t n) {
  const auto bytes =
      static_cast<std::int64_t>(size_of(view.dtype)) * n < 16 ? static_cast<std::int64_t>(size_of(view.dtype)) * n : 16;
  return view.cols % n == 0 && reinterpret_cast<std::uintptr_t>(view.data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         (view.rows <= 1 || view.stride * static_cast<std::int64_t>(size_of(view.dtype)) % bytes == 0);
}

/// Calls fn(T{}) with the element type: float or Bf16.
template <class Fn>
void with_type(DType dtype, const Fn& fn) {
  if (dtype == DType::f32) {
    fn(float{});
  } else {
    fn(Bf16{});
  }
}
/// Calls fn with std::true_type or std::false_type.
template <class Fn>
void with_flag(bool flag, const Fn& fn) {
  if (flag) {
    fn(std::true_type{});
  } else {
    fn(std::false_type{});
  }
}

template <class T>
T* elements(const TensorView& view) {
  return reinterpret_cast<T*>(view.data);
}
template <class T>
const T* elements(const ConstTensorView& view) {
  return reinterpret_cast<const T*>(view.data);
}

}  // namespace baton::cuda
