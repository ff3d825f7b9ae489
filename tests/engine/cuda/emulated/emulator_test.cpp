// SPDX-License-Identifier: Apache-2.0
// The emulator itself: fragment layouts against plain loops, and that it finds the mistakes it is there to find.
#include "simt_emulator.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "engine/tensor/tensor.h"
#include "tests/support/simt/emulated_backend.h"

namespace baton::test::emulator_test {
namespace {

using namespace cuda;
using Catch::Contains;

/// Runs a kernel at once, on memory of the host, and without the shadow memory (shadow_test.cpp).
template <class... Params, class... Args>
void run_now(unsigned blocks, unsigned threads, std::size_t shared_bytes, void (*kernel)(Params...), Args... args) {
  const WithoutShadow plain;
  simt::run_grid(dim3(blocks), threads, shared_bytes, [&] { kernel(args...); });
}

struct Products {
  Bf16 a[16][16], b[8][16];  // b by columns: b[n][k]
  Bf16 v[16][16];            // by rows: v[k][n], read transposed
  float c[16][8], d[16][16];
};

/// One warp: c = a b as keys are read, d = a v as values are read.
void multiply_kernel(Products* all) {
  struct Shared {
    alignas(16) Bf16 a[16][16], b[16][16], v[16][16];
  };
  Shared& shared = shared_memory<Shared>();
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) {
    shared.a[i / 16][i % 16] = all->a[i / 16][i % 16];
    shared.b[i / 16][i % 16] = i < 128 ? all->b[i / 16][i % 16] : Bf16{0};
    shared.v[i / 16][i % 16] = all->v[i / 16][i % 16];
  }
  sync_block();
  std::uint32_t a[4], b[4];
  load_matrix_x4(a, &shared.a[lane % 16][lane / 16 * 8]);
  load_matrix_x4(b, &shared.b[(lane & 7) + (lane >> 4) * 8][((lane >> 3) & 1) * 8]);
  float c[4] = {}, d[2][4] = {};
  multiply_16x8x16(c, a, b[0], b[1]);
  load_matrix_x4_transposed(b, &shared.v[lane & 15][(lane >> 4) * 8]);
  multiply_16x8x16(d[0], a, b[0], b[1]);
  multiply_16x8x16(d[1], a, b[2], b[3]);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, col = lane % 4 * 2 + i % 2;
    all->c[row][col] = c[i];
    all->d[row][col] = d[0][i];
    all->d[row][col + 8] = d[1][i];
  }
}

TEST_CASE("emulator: products and matrix loads have the layouts of the PTX manual") {
  std::mt19937 random(3);
  Products all{};
  const auto fill = [&](auto& matrix) {
    for (auto& row : matrix) {
      for (Bf16& value : row) value = to_bf16(static_cast<float>(static_cast<int>(random() % 17) - 8));
    }
  };
  fill(all.a), fill(all.b), fill(all.v);
  struct Size {
    Bf16 matrices[3][16][16];
  };
  run_now(1, 32, sizeof(Size), multiply_kernel, &all);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      float c = 0, d = 0;
      for (int k = 0; k < 16; ++k) {
        if (n < 8) c += to_float(all.a[m][k]) * to_float(all.b[n][k]);
        d += to_float(all.a[m][k]) * to_float(all.v[k][n]);
      }
      if (n < 8) REQUIRE(all.c[m][n] == c);
      REQUIRE(all.d[m][n] == d);
    }
  }
}

void shuffle_kernel(int* out) {
  const int own = static_cast<int>(threadIdx.x);
  out[own] = shuffle_xor(own, 5) * 1000 + shuffle(own, 3);
}

TEST_CASE("emulator: shuffles stay in their warp") {
  std::vector<int> out(64);
  for (const simt::Order order : {simt::Order::ascending, simt::Order::descending, simt::Order::random}) {
    const InOrder only(order);
    run_now(1, 64, 0, shuffle_kernel, out.data());
    for (int i = 0; i < 64; ++i) REQUIRE(out[static_cast<std::size_t>(i)] == (i ^ 5) * 1000 + 3 + i / 32 * 32);
  }
}

struct Neighbours {
  int value[64];
};

/// Each thread reads what its neighbour wrote; right only with the barrier.
void neighbour_kernel(int* out, bool barrier) {
  Neighbours& shared = shared_memory<Neighbours>();
  const auto own = threadIdx.x;
  shared.value[own] = static_cast<int>(own);
  if (barrier) sync_block();
  out[own] = shared.value[(own + 1) % 64];
}

TEST_CASE("emulator: a missing barrier shows in some order of threads") {
  const auto run = [](bool barrier, simt::Order order) {
    const InOrder only(order, 3);
    std::vector<int> out(64);
    run_now(1, 64, sizeof(Neighbours), neighbour_kernel, out.data(), barrier);
    return out;
  };
  const auto expected = run(true, simt::Order::ascending);
  for (const simt::Order order : {simt::Order::descending, simt::Order::random}) {
    REQUIRE(run(true, order) == expected);
    REQUIRE(run(false, order) != expected);
  }
}

TEST_CASE("emulator: shared memory begins as NaN, and again in every block") {
  struct Shared {
    float values[32];
  };
  std::vector<float> out(64, 1.0f);
  const auto kernel = +[](float* to) {
    Shared& shared = shared_memory<Shared>();
    to[blockIdx.x * 32 + threadIdx.x] = shared.values[threadIdx.x];
    shared.values[threadIdx.x] = 2.0f;
  };
  run_now(2, 32, sizeof(Shared), kernel, out.data());
  for (const float value : out) REQUIRE(std::isnan(value));
}

// Outside of the test's macros, which put all of their text at one place.
void two_barriers(float*) {
  if (threadIdx.x < 16) {
    sync_block();
  } else {
    sync_block();
  }
}
void two_shuffles(float* out) { out[0] = threadIdx.x < 16 ? shuffle_xor(1.0f, 1) : shuffle_xor(2.0f, 1); }

TEST_CASE("emulator: what it refuses") {
  struct Small {
    float values[4];
  };
  const auto run = [](void (*kernel)(float*), unsigned threads, std::size_t shared) {
    std::vector<float> memory(64);
    run_now(1, threads, shared, kernel, memory.data());
  };
  REQUIRE_THROWS_WITH(run(
                          +[](float*) {
                            if (threadIdx.x != 3) sync_block();
                          },
                          32, 0),
                      Contains("not all threads reach it") || Contains("after other threads have ended"));
  REQUIRE_THROWS_WITH(run(two_barriers, 32, 0), Contains("divergent barriers"));
  REQUIRE_THROWS_WITH(run(
                          +[](float*) {
                            if (threadIdx.x != 7) sync_warp();
                          },
                          32, 0),
                      Contains("the warp operation of emulator_test.cpp"));
  REQUIRE_THROWS_WITH(run(two_shuffles, 32, 0), Contains("lanes of one warp at different operations"));
  REQUIRE_THROWS_WITH(run(
                          +[](float* out) { out[0] = shared_memory<Small>().values[0]; }, 32, 8),
                      Contains("16 bytes of shared memory; the launch gave 8"));
  REQUIRE_THROWS_WITH(run(
                          +[](float*) { shared_memory<Small>().values[4] = 0; }, 1, sizeof(Small)),
                      Contains("past its shared memory"));
  REQUIRE_THROWS_WITH(run(
                          +[](float* in) { copy_async_16(&shared_memory<Small>(), in + 1, true); }, 1, sizeof(Small)),
                      Contains("not aligned"));
  REQUIRE_THROWS_WITH(run(
                          +[](float* in) { copy_async_16(&shared_memory<Small>(), in, true); }, 1, sizeof(Small)),
                      Contains("still under way"));
  REQUIRE_THROWS_WITH(run(
                          +[](float*) {}, 2048, 0),
                      Contains("2048 threads"));
  REQUIRE_THROWS_WITH(run(
                          +[](float*) {}, 32, std::size_t{1} << 20),
                      Contains("1048576 bytes of shared memory"));
}

TEST_CASE("emulator: asynchronous copies are not there before they are waited for") {
  struct Shared {
    alignas(16) float values[4];
  };
  alignas(16) float in[4] = {1, 2, 3, 4};
  float out[3] = {};
  const auto kernel = +[](const float* from, float* to) {
    Shared& shared = shared_memory<Shared>();
    copy_async_16(shared.values, from, true);
    copy_async_commit();
    to[0] = shared.values[2];
    copy_async_wait<0>();
    to[1] = shared.values[2];
    copy_async_16(shared.values, from, false);
    copy_async_commit();
    copy_async_wait<0>();
    to[2] = shared.values[2];
  };
  run_now(1, 1, sizeof(Shared), kernel, in, out);
  REQUIRE(std::isnan(out[0]));
  REQUIRE(out[1] == 3);
  REQUIRE(out[2] == 0);
}

}  // namespace
}  // namespace baton::test::emulator_test
