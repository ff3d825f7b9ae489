// SPDX-License-Identifier: Apache-2.0
// A SIMT machine on the host, for tests: takes the place of the device functions of engine/cuda/kernels/simt.cuh, so
// that the very sources of the CUDA kernels run under the ordinary compiler. Every thread of a block is a fiber;
// barriers and warp operations switch between them, in an order that a test chooses.
//
// It proves indexing, arithmetic and the placement of barriers; it proves nothing about time. What it reports, as
// simt::Fault with the kernel's file and line: barriers and warp operations that not all threads reach, shared memory
// beyond the launch's size, misaligned 16-byte copies, and what the shadow memory finds (shadow.h). Shared memory
// starts as NaN; asynchronous copies are made only when they are waited for.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/cuda/host/runtime.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1) : x(x_in), y(y_in), z(z_in) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  std::uint32_t x, y, z, w;
};
struct alignas(8) uint2 {
  std::uint32_t x, y;
};

namespace baton::simt {

using Place = std::source_location;

class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// In which order the threads of a block run between barriers.
enum class Order : std::uint8_t { ascending, descending, random };
struct Settings {
  Order order = Order::ascending;
  std::uint32_t seed = 1;
  bool shadow = true;  // false: for kernels whose sources are not compiled for it, on memory of the host
};
Settings& settings();

/// Launches and threads so far: a test that meant to emulate something checks that it did.
struct Counters {
  std::uint64_t launches = 0, threads = 0, products = 0;
};
Counters& counters();

struct ThreadPlace {
  dim3 thread, block, block_dim, grid_dim;
};
const ThreadPlace& here();

/// Gives a launch to a stream of the strict runtime (tests/support/strict). body() is one thread.
void start(void* stream, const void* kernel, dim3 grid, unsigned threads, std::size_t shared_bytes,
           std::function<void()> body);

/// Runs body() once per thread of every block. `kernel` is what reports name.
void run_grid(dim3 grid, unsigned threads, std::size_t shared_bytes, const std::function<void()>& body,
              const void* kernel = nullptr);

void* shared_bytes(std::size_t size, const Place& place);
void block_barrier(const Place& place);

/// Brings the 32 lanes of the warp together: the last to come calls act(operands) with each lane's operand, by lane.
using WarpAct = void (*)(void* const* operands);
void warp_together(void* operand, WarpAct act, const Place& place);

void copy_async(void* shared, const void* global, bool valid, const Place& place);
void copy_async_commit();
void copy_async_wait(int pending);

}  // namespace baton::simt

#define threadIdx (::baton::simt::here().thread)
#define blockIdx (::baton::simt::here().block)
#define blockDim (::baton::simt::here().block_dim)
#define gridDim (::baton::simt::here().grid_dim)

namespace baton::cuda {

using simt::Place;

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline std::uint32_t pack_bf16(float low, float high) {
  return to_bf16(low).bits | static_cast<std::uint32_t>(to_bf16(high).bits) << 16;
}
inline std::uint32_t and_or(std::uint32_t word, std::uint32_t mask, std::uint32_t bits) { return (word & mask) | bits; }
inline std::uint32_t add_bf16(std::uint32_t pair, float value) {
  const auto half = [&](std::uint32_t bits) { return to_float(Bf16{static_cast<std::uint16_t>(bits)}) + value; };
  return pack_bf16(half(pair & 0xffffu), half(pair >> 16));
}
inline std::uint32_t multiply_bf16(std::uint32_t pair, float value) {
  const auto half = [&](std::uint32_t bits) { return to_float(Bf16{static_cast<std::uint16_t>(bits)}) * value; };
  return pack_bf16(half(pair & 0xffffu), half(pair >> 16));
}
inline std::uint32_t add_pairs_bf16(std::uint32_t a, std::uint32_t b) {
  const auto half = [](std::uint32_t bits) { return to_float(Bf16{static_cast<std::uint16_t>(bits)}); };
  return pack_bf16(half(a & 0xffffu) + half(b & 0xffffu), half(a >> 16) + half(b >> 16));
}
inline std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t nibble = selector >> (4 * i) & 15u, byte = bytes >> (8 * (nibble & 7u)) & 0xffu;
    out |= ((nibble & 8u) == 0 ? byte : byte >= 0x80u ? 0xffu : 0u) << (8 * i);  // bit 3: eight times the sign
  }
  return out;
}
float half_to_float(std::uint16_t bits);
inline float exp2_fast(float x) { return std::exp2(x); }

inline void sync_block(const Place& place = Place::current()) { simt::block_barrier(place); }
void sync_warp(const Place& place = Place::current());

template <class T>
T shuffle(T value, int lane, const Place& place = Place::current()) {
  struct Operand {
    T value;
    int from;
  } own{value, lane};
  simt::warp_together(
      &own,
      [](void* const* operands) {
        T values[32];
        for (int i = 0; i < 32; ++i) values[i] = static_cast<Operand*>(operands[i])->value;
        for (int i = 0; i < 32; ++i) {
          auto* operand = static_cast<Operand*>(operands[i]);
          operand->value = values[operand->from & 31];
        }
      },
      place);
  return own.value;
}
template <class T>
T shuffle_xor(T value, int mask, const Place& place = Place::current()) {
  return cuda::shuffle(value, static_cast<int>(simt::here().thread.x % 32) ^ mask, place);
}

void atomic_add(std::uint64_t* to, std::uint64_t value);
std::uint32_t fetch_add(std::uint32_t* to, std::uint32_t value);

inline void copy_async_16(void* shared, const void* global, bool valid, const Place& place = Place::current()) {
  simt::copy_async(shared, global, valid, place);
}
inline void copy_async_commit() { simt::copy_async_commit(); }
template <int kPending>
void copy_async_wait() {
  simt::copy_async_wait(kPending);
}

void load_matrix_x4(std::uint32_t (&r)[4], const void* shared, const Place& place = Place::current());
void load_matrix_x4_transposed(std::uint32_t (&r)[4], const void* shared, const Place& place = Place::current());
void multiply_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                      const Place& place = Place::current());

inline void product_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                            const Place& place = Place::current()) {
  for (float& one : c) one = 0.0f;
  multiply_16x8x16(c, a, b0, b1, place);
}

template <class Layout>
Layout& shared_memory(const Place& place = Place::current()) {
  return *static_cast<Layout*>(simt::shared_bytes(sizeof(Layout), place));
}

template <class... Params, class... Args>
void start_kernel(Stream stream, dim3 grid, unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...),
                  Args&&... args) {
  const std::tuple<Params...> kept(static_cast<Params>(args)...);
  simt::start(stream.native, reinterpret_cast<const void*>(kernel), grid, threads, shared_bytes,
              [=] { std::apply(kernel, kept); });
}

}  // namespace baton::cuda
