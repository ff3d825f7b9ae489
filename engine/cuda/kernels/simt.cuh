// SPDX-License-Identifier: Apache-2.0
// The machine as kernel sources see it: threads, barriers, warps, shared memory, tensor cores, launches. nvcc compiles
// them for the device; any other compiler uses the tests' emulator, which runs the same sources on the host
// (docs/decisions/cuda.md).
#pragma once

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include <simt_emulator.h>
#endif

#include <cstdint>
#include <utility>

#include "engine/backend/backend.h"
#include "engine/cuda/host/check.h"
#include "engine/cuda/host/runtime.h"

#ifdef __CUDACC__
// Small functions around inline PTX: warps, tensor cores, asynchronous copies. The tests' emulator implements the same
// functions. Fragment layouts are those of the PTX manual (mma.m16n8k16, ldmatrix).
namespace baton::cuda {

// Conversions. Rounding is to nearest even; a NaN becomes the canonical 0x7fff.
__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(Bf16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16);
}
__device__ __forceinline__ Bf16 to_bf16(float value) {
  Bf16 out;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(out.bits) : "f"(value));
  return out;
}
/// Two bf16 in a register, `low` in the low half.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
/// (word & mask) | bits, as one instruction.
__device__ __forceinline__ std::uint32_t and_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) {
  std::uint32_t out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(word), "r"(mask), "r"(bits));
  return out;
}
/// Both bf16 of a register plus a value that is one.
__device__ __forceinline__ std::uint32_t add_bf16(std::uint32_t pair, float value) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(pair), "r"(0x3f803f80u), "r"(pack_bf16(value, value)));
  return out;
}
/// Both bf16 of a register times a value that is one.
__device__ __forceinline__ std::uint32_t multiply_bf16(std::uint32_t pair, float value) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(pair), "r"(pack_bf16(value, value)), "r"(0x80008000u));
  return out;
}
/// Both bf16 of a register plus both of another.
__device__ __forceinline__ std::uint32_t add_pairs_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t out;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(0x3f803f80u), "r"(b));
  return out;
}
/// Byte i is that byte of (high, low) which nibble i of `selector` numbers, 0 to 7. __byte_perm masks the nibbles
/// first.
__device__ __forceinline__ std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  std::uint32_t out;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
  return out;
}
__device__ __forceinline__ float half_to_float(std::uint16_t bits) {
  float out;
  asm("cvt.f32.f16 %0, %1;" : "=f"(out) : "h"(bits));
  return out;
}

/// 2^x within 2 units in the last place; 2^-infinity is 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

__device__ __forceinline__ void sync_block() { __syncthreads(); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }

/// Returns the value of lane (own ^ mask). All 32 lanes must call it.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
/// Returns the value of lane `lane`. All 32 lanes must call it.
template <class T>
__device__ __forceinline__ T shuffle(T value, int lane) {
  return __shfl_sync(0xffffffffu, value, lane);
}

/// `to` is in global memory. An addition to an address of any kind is a branch, with a loop for shared memory.
__device__ __forceinline__ void atomic_add(std::uint64_t* to, std::uint64_t value) {
  asm volatile("red.global.add.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(to)), "l"(value) : "memory");
}

/// Returns what was there before.
__device__ __forceinline__ std::uint32_t fetch_add(std::uint32_t* to, std::uint32_t value) {
  return atomicAdd(to, value);
}

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

/// Starts copying 16 bytes to shared memory past the registers; both ends aligned to 16. `valid` false writes zeros and
/// reads nothing.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void copy_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most `kPending` of this thread's committed groups are incomplete.
template <int kPending>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Four 8x8 matrices of bf16; lane 8 i + r gives the address of row r of matrix i (16 bytes, aligned). Register i of a
/// lane then holds elements (lane / 4, 2 (lane % 4) and the next) of matrix i.
__device__ __forceinline__ void load_matrix_x4(std::uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}
/// As load_matrix_x4, with each matrix transposed.
__device__ __forceinline__ void load_matrix_x4_transposed(std::uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared))
               : "memory");
}

/// c[16, 8] += a[16, 16] * b[16, 8], bf16 products summed in fp32. With g = lane / 4 and p = 2 (lane % 4):
///   a: (g, p..) (g + 8, p..) (g, p + 8..) (g + 8, p + 8..)      b: (p.., g) (p + 8.., g)
///   c: (g, p) (g, p + 1) (g + 8, p) (g + 8, p + 1)
__device__ __forceinline__ void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                 std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// The same into c, from zero.
__device__ __forceinline__ void product_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                                std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

// The implementation of simt.cuh for a device. All inline PTX of the backend is in ptx.cuh.

/// Returns the block's dynamic shared memory. A kernel calls it once, with the layout whose size its launch passed.
template <class Layout>
__device__ __forceinline__ Layout& shared_memory() {
  extern __shared__ __align__(128) unsigned char baton_shared_memory[];
  return *reinterpret_cast<Layout*>(baton_shared_memory);
}

/// Queues the kernel; cudaGetLastError says whether that worked.
template <class... Params, class... Args>
void start_kernel(Stream stream, dim3 grid, unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...),
                  Args&&... args) {
  kernel<<<grid, threads, shared_bytes, static_cast<cudaStream_t>(stream.native)>>>(std::forward<Args>(args)...);
}

}  // namespace baton::cuda
#endif  // __CUDACC__

namespace baton::cuda {

/// Launches kernel<<<grid, threads, shared_bytes, stream>>>(arguments...), or appends the launch to the stream's log.
/// Throws BackendError.
template <class... Params, class... Args>
void launch(Stream stream, dim3 grid, unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...),
            Args&&... args) {
  if (stream.log != nullptr) {
    stream.log->add(kernel, grid.x, grid.y, threads, shared_bytes, static_cast<const Params&>(args)...);
    return;
  }
  constexpr std::size_t kWithoutAsking = 48 * 1024;
  if (shared_bytes > kWithoutAsking) {
    BATON_CUDA_CHECK(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  }
  start_kernel(stream, grid, threads, shared_bytes, kernel, std::forward<Args>(args)...);
  check_launch(reinterpret_cast<const void*>(kernel), stream);
}

// Reads and writes several neighbouring elements at once, as 16-byte (or 8-byte) accesses where they are aligned.

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

/// Rows in the arguments of a kernel. Strides in elements.
template <class T>
struct Strided {
  T* data;
  std::int64_t stride;
  __device__ __forceinline__ T* row(std::int64_t index) const { return data + index * stride; }
};
template <class T>
Strided<T> strided(const TensorView& view) {
  return {elements<T>(view), view.stride};
}
template <class T>
Strided<const T> strided(const ConstTensorView& view) {
  return {elements<T>(view), view.stride};
}

}  // namespace baton::cuda
