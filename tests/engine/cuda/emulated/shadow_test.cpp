// SPDX-License-Identifier: Apache-2.0
// The shadow memory of the emulator: every kind of mistake is reported, and what is allowed is not. This file is
// compiled as kernels are, so that its accesses are seen.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "engine/cuda/kernels/simt.cuh"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/shadow.h"
#include "tests/support/strict/strict.h"

namespace baton::test::shadow_test {
namespace {

using namespace cuda;
using Catch::Contains;

struct Words {
  alignas(16) std::uint32_t word[64];
};
struct Halves {
  std::uint16_t half[64];
};

/// What is reported of a kernel that needs shared memory alone.
template <class Layout = Words>
std::string mistake(unsigned blocks, unsigned threads, void (*kernel)()) {
  try {
    simt::run_grid(dim3(blocks), threads, sizeof(Layout), kernel, reinterpret_cast<const void*>(kernel));
  } catch (const simt::Fault& fault) {
    return fault.what();
  }
  return "";
}

Words& words() { return shared_memory<Words>(); }
unsigned own() { return threadIdx.x; }

// Kernels stand outside of the test's macros, which put all of their text at one place.
void same_value() { words().word[0] = 1; }
void read_then_written() {
  words().word[own()] = own();
  sync_block();
  if (words().word[3] == 3 && own() == 9) words().word[3] = 4;
}
/// A word for each thread, which all may read.
void begin() {
  words().word[own()] = own();
  sync_block();
}
void neighbours() {
  begin();
  words().word[own()] = own();
  if (words().word[own() ^ 1] > 64) words().word[own()] = 7;
}
void ordered_by_block() {
  words().word[own()] = own();
  sync_block();
  const std::uint32_t other = words().word[63 - own()];
  sync_block();
  words().word[own()] = other;
}
void ordered_by_warp() {
  words().word[own()] = own();
  sync_warp();
  const std::uint32_t other = words().word[own() ^ 31];
  sync_warp();
  words().word[own()] = other;
}
void warp_barrier_for_a_block() {
  begin();
  words().word[own()] = own();
  sync_warp();
  if (words().word[63 - own()] > 64) words().word[own()] = 7;
}
void shuffle_for_a_barrier() {
  begin();
  words().word[own()] = own();
  shuffle_xor(1.0f, 1);
  if (words().word[own() ^ 1] > 64) words().word[own()] = 7;
}
void product_for_a_barrier() {
  begin();
  words().word[own()] = own();
  float c[4] = {};
  multiply_16x8x16(c, {0, 0, 0, 0}, 0, 0);
  if (words().word[own() ^ 1] > 64) words().word[own()] = 7;
}
void matrix_of(bool barrier) {
  for (unsigned i = own(); i < 64; i += 32) words().word[i ^ 1] = i;
  if (barrier) sync_warp();
  std::uint32_t r[4];
  load_matrix_x4(r, &words().word[own() % 16 * 4]);
}
void matrix_too_early() { matrix_of(false); }
void matrix() { matrix_of(true); }

TEST_CASE("shadow: accesses that no barrier orders are reported, whether or not they change a result") {
  for (const simt::Order order : {simt::Order::ascending, simt::Order::descending, simt::Order::random}) {
    const InOrder only(order);
    CHECK_THAT(mistake(1, 64, same_value), Contains("writes byte 0 of 256 of shared memory, and no barrier orders"));
    CHECK_THAT(mistake(1, 64, read_then_written), Contains("byte 12 of 256") && Contains("thread 9 writes"));
    CHECK_THAT(mistake(1, 64, neighbours), Contains("no barrier orders them"));
    CHECK_THAT(mistake(1, 64, warp_barrier_for_a_block), Contains("no barrier orders them"));
    CHECK_THAT(mistake(1, 64, shuffle_for_a_barrier), Contains("no barrier orders them"));
    CHECK_THAT(mistake(1, 64, product_for_a_barrier), Contains("no barrier orders them"));
    CHECK_THAT(mistake(1, 32, matrix_too_early), Contains("no barrier orders them"));
    CHECK(mistake(1, 64, ordered_by_block).empty());
    CHECK(mistake(1, 64, ordered_by_warp).empty());
    CHECK(mistake(1, 32, matrix).empty());
  }
}

void two_readers() {
  words().word[own()] = 0;
  sync_block();
  if (own() == 0 || own() == 1 || own() == 40) words().word[50] += words().word[7];
}
void readers_of_two_warps() {
  if (own() == 5) words().word[7] = 0;
  sync_block();
  if (own() == 6 || own() == 40) {
    if (words().word[7] == 1) words().word[own()] = 1;
  }
  sync_warp();
  if (own() == 8) words().word[7] = 2;  // after the read of thread 6, not after that of thread 40
}
void readers_before_a_warp_barrier() {
  if (own() == 5) words().word[7] = 0;
  sync_block();
  if (own() < 32 && words().word[7] == 1) words().word[own()] = 1;
  sync_warp();
  if (own() == 8) words().word[7] = 2;
}

TEST_CASE("shadow: a write is compared with every read since the last barrier") {
  CHECK_THAT(mistake(1, 64, two_readers), Contains("byte 200 of 256"));
  CHECK_THAT(mistake(1, 64, readers_of_two_warps), Contains("thread 40 reads and thread 8 writes byte 28"));
  CHECK(mistake(1, 64, readers_before_a_warp_barrier).empty());
}

void own_halves() { shared_memory<Halves>().half[own()] = 1; }
void overlapping() {
  if (own() % 2 == 0) reinterpret_cast<std::uint32_t&>(shared_memory<Halves>().half[own()]) = 1;
  if (own() == 3) shared_memory<Halves>().half[3] = 1;
}

TEST_CASE("shadow: bytes are told apart") {
  CHECK(mistake<Halves>(1, 64, own_halves).empty());
  CHECK_THAT(mistake<Halves>(1, 64, overlapping), Contains("byte 6 of 128"));
}

void of_last_block() {
  if (blockIdx.x == 0) words().word[own()] = 1;
  if (blockIdx.x == 1 && words().word[own()] == 1) words().word[own()] = 2;
}
void unwritten_tail() {
  if (own() < 63) words().word[own()] = own();
  sync_block();
  if (words().word[63 - own()] == 100) words().word[own()] = 0;
}
void unwritten_matrix() {
  for (unsigned i = own(); i < 60; i += 32) words().word[i] = i;
  sync_warp();
  std::uint32_t r[4];
  load_matrix_x4_transposed(r, &words().word[own() % 16 * 4]);
}
void past_the_end() {
  if (own() == 17 && reinterpret_cast<volatile std::uint32_t*>(words().word)[64] == 1) words().word[0] = 1;
}

TEST_CASE("shadow: shared memory that the block has not written is not read") {
  CHECK_THAT(mistake(2, 32, of_last_block), Contains("block 1, 0, 0: thread 0 reads byte 0 of 256 of shared memory, "
                                                     "which nothing has written: shadow_test.cpp:"));
  CHECK_THAT(mistake(1, 64, unwritten_tail), Contains("thread 0 reads byte 252"));
  CHECK_THAT(mistake(1, 32, unwritten_matrix), Contains("reads byte 240"));
  CHECK_THAT(mistake(1, 32, past_the_end), Contains("thread 17 reads byte 256 of 256 of shared memory, outside of it"));
}

/// Sixteen bytes per thread of a warp, where `from` is a word of the thread.
struct Copied {
  alignas(16) std::uint32_t word[64][4];
};
constexpr unsigned kWordsOfCopy = 4;
alignas(16) std::uint32_t source[64][kWordsOfCopy];

void copy_own() {
  copy_async_16(&shared_memory<Copied>().word[own()], source[own()], own() != 2);
  copy_async_commit();
}
bool is_odd(unsigned thread) { return shared_memory<Copied>().word[thread][1] % 2 == 1; }
void keep(bool value) { shared_memory<Copied>().word[own()][0] = value ? 1 : 2; }

void copied() {
  copy_own();
  copy_async_wait<0>();
  const bool mine = is_odd(own());
  sync_block();
  const bool other = is_odd(63 - own());
  sync_block();
  keep(mine || other);
}
void copy_read_too_early() {
  copy_own();
  keep(is_odd(own()));
  copy_async_wait<0>();
}
void copy_read_by_others() {
  copy_own();
  copy_async_wait<0>();
  sync_warp();
  if (own() == 5) copy_own();
  copy_async_wait<0>();
  keep(is_odd(own() ^ 1));
}
void barrier_before_the_wait() {
  copy_own();
  sync_block();
  copy_async_wait<0>();
  keep(is_odd(own() ^ 1));
}
void barrier_without_a_wait() {
  copy_own();
  copy_own();
  copy_async_wait<0>();
}
void waits_for_the_group_before() {
  auto& all = shared_memory<Copied>().word;
  copy_async_16(&all[own()], source[own()], true);
  copy_async_commit();
  copy_async_16(&all[own() + 32], source[own()], true);
  copy_async_commit();
  copy_async_wait<1>();
  sync_block();
  const bool first = is_odd(own() ^ 1), second = is_odd(32 + (own() ^ 1));
  copy_async_wait<0>();
  sync_block();
  keep(first || second);
}
void copied_over_while_read() {
  copy_own();
  copy_async_wait<0>();
  sync_block();
  const bool other = is_odd(own() ^ 1);
  copy_own();
  copy_async_wait<0>();
  sync_block();
  keep(other);
}

TEST_CASE("shadow: asynchronous copies are read only after the wait and the barrier") {
  CHECK(mistake<Copied>(1, 64, copied).empty());
  CHECK_THAT(mistake<Copied>(1, 64, copy_read_too_early), Contains("while the copy by thread 0 to it is not waited"));
  CHECK_THAT(mistake<Copied>(1, 64, copy_read_by_others), Contains("thread 5") && Contains("no barrier orders"));
  CHECK_THAT(mistake<Copied>(1, 64, barrier_before_the_wait), Contains("while the copy by thread"));
  CHECK_THAT(mistake<Copied>(1, 64, barrier_without_a_wait), Contains("writes byte 0 of 1024 of shared memory while"));
  CHECK_THAT(mistake<Copied>(1, 32, waits_for_the_group_before), Contains("reads byte 532") && Contains("not waited"));
  CHECK_THAT(mistake<Copied>(1, 64, copied_over_while_read), Contains("no barrier orders them"));
}

void counts(bool barrier) {
  if (own() == 0) words().word[0] = 0;
  sync_block();
  fetch_add(&words().word[0], 1);
  if (barrier) sync_block();
  if (words().word[0] == 100 && own() == 1) words().word[1] = 1;
}
void counted() { counts(true); }
void counted_too_early() { counts(false); }
void counted_by_another_warp() {
  if (own() == 0) words().word[0] = 0;
  sync_block();
  if (own() < 32) fetch_add(&words().word[0], 1);
  sync_warp();
  if (own() % 32 == 3 && words().word[0] == 100) words().word[1] = 1;
}
void count_without_a_beginning() { fetch_add(&words().word[0], 1); }

TEST_CASE("shadow: atomic operations conflict with other accesses, not with one another") {
  CHECK(mistake(1, 64, counted).empty());
  CHECK_THAT(mistake(1, 64, counted_too_early), Contains("no barrier orders them"));
  CHECK_THAT(mistake(1, 64, counted_by_another_warp), Contains("thread 35 reads byte 0"));
  CHECK_THAT(mistake(1, 64, count_without_a_beginning), Contains("which nothing has written"));
}

/// Memory of a device, as kernels get it.
class DeviceWords {
 public:
  explicit DeviceWords(std::size_t count) {
    cudaSetDevice(0);
    cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(std::uint32_t));
  }
  ~DeviceWords() { cudaFree(data_); }
  DeviceWords(const DeviceWords&) = delete;
  DeviceWords& operator=(const DeviceWords&) = delete;
  std::uint32_t* data() const { return data_; }

 private:
  std::uint32_t* data_ = nullptr;
};

/// A device of which a kernel failed can do nothing more.
struct AfterMistakes {
  AfterMistakes() = default;
  ~AfterMistakes() { strict::restart(); }
  AfterMistakes(const AfterMistakes&) = delete;
  AfterMistakes& operator=(const AfterMistakes&) = delete;
};

/// What is reported of a kernel on a device's memory.
template <class... Params, class... Args>
std::string launched(unsigned blocks, unsigned threads, void (*kernel)(Params...), Args... args) {
  simt::start(nullptr, reinterpret_cast<const void*>(kernel), dim3(blocks), threads, 0, [=] { kernel(args...); });
  cudaStreamSynchronize(nullptr);
  std::string all;
  for (const std::string& one : strict::take_reports()) all += one;
  return all;
}

void fill(std::uint32_t* to, unsigned count) {
  if (const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count) to[i] = i;
}
void fill_all(std::uint32_t* to) { to[threadIdx.x] = 1; }
void move(std::uint32_t* to, const std::uint32_t* from, unsigned count) {
  if (const unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count) to[i] = from[i];
}
void add_all(std::uint32_t* to) { fetch_add(to, 1); }

TEST_CASE("shadow: the blocks of a launch do not write what others access") {
  const AfterMistakes restarts;
  const DeviceWords words(64);
  CHECK(launched(2, 32, fill, words.data(), 64u).empty());
  CHECK(launched(3, 32, add_all, words.data()).empty());
  CHECK(launched(1, 64, fill, words.data(), 64u).empty());  // launches follow one another
  CHECK_THAT(launched(2, 32, fill_all, words.data()),
             Contains("fill_all, block 1, 0, 0: thread 0 of block 0, 0, 0 writes and thread 0 writes byte 0 of an "
                      "allocation of 256 bytes, and no barrier orders them: shadow_test.cpp:"));
}

TEST_CASE("shadow: memory of a device is written before it is read") {
  const AfterMistakes restarts;
  const DeviceWords from(70), to(70);
  SECTION("by kernels") {
    CHECK(launched(3, 32, fill, from.data(), 69u).empty());
    CHECK(launched(3, 32, move, to.data(), std::as_const(from).data(), 69u).empty());
    CHECK_THAT(launched(3, 32, move, to.data(), from.data(), 70u),
               Contains("move, block 2, 0, 0: thread 5 reads byte 276 of an allocation of 280 bytes, which nothing"));
  }
  SECTION("by the host") {
    const std::vector<std::uint32_t> host(70);
    cudaMemcpy(from.data(), host.data(), 60 * 4, cudaMemcpyHostToDevice);
    cudaMemset(from.data() + 60, 0, 9 * 4);
    CHECK(launched(3, 32, move, to.data(), from.data(), 69u).empty());
    CHECK_THAT(launched(3, 32, move, to.data(), from.data(), 70u), Contains("reads byte 276 of an allocation"));
  }
  SECTION("a copy is what was copied") {
    CHECK(launched(3, 32, fill, from.data() + 1, 69u).empty());
    cudaMemcpy(to.data(), from.data(), 70 * 4, cudaMemcpyDeviceToDevice);
    CHECK(launched(3, 32, move, from.data(), to.data() + 1, 69u).empty());
    CHECK_THAT(launched(3, 32, move, from.data(), to.data(), 70u), Contains("reads byte 0 of an allocation"));
  }
  SECTION("nobody reads behind an allocation") {
    CHECK(launched(3, 32, fill, from.data(), 70u).empty());
    CHECK_THAT(launched(3, 32, move, to.data(), from.data(), 71u),
               Contains("thread 6 reads byte 280 of an allocation of 280 bytes, outside of it"));
  }
}

}  // namespace
}  // namespace baton::test::shadow_test
