// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/machine.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/backend.h"

namespace baton::cpu {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST_CASE("a large block is kept and serves the next request of nearly its size") {
  BlockPool pool;
  void* first = pool.allocate(40 * kMiB);
  std::memset(first, 0xff, 40 * kMiB);
  CHECK(pool.kept_bytes() == 0);
  pool.release(first, 40 * kMiB);
  CHECK(pool.kept_bytes() == 40 * kMiB);
  void* second = pool.allocate(37 * kMiB);  // as large as 40 MiB, by the steps of an eighth
  CHECK(second == first);
  CHECK(pool.kept_bytes() == 0);
  void* other = pool.allocate(37 * kMiB);
  CHECK(other != first);
  pool.release(second, 37 * kMiB);
  pool.release(other, 37 * kMiB);
  CHECK(pool.kept_bytes() == 80 * kMiB);
}

TEST_CASE("zeroed memory is zero where a block was used before") {
  for (const std::size_t bytes : {std::size_t{64}, 8 * kMiB}) {
    BlockPool pool;
    auto* used = static_cast<unsigned char*>(pool.allocate(bytes));
    std::memset(used, 0xff, bytes);
    pool.release(used, bytes);
    auto* zeroed = static_cast<unsigned char*>(pool.allocate_zeroed(bytes));
    CHECK(std::all_of(zeroed, zeroed + bytes, [](unsigned char byte) { return byte == 0; }));
    pool.release(zeroed, bytes);
  }
}

TEST_CASE("used and kept blocks together are never more than what was used at once") {
  BlockPool pool;
  std::vector<std::pair<void*, std::size_t>> used;
  std::size_t bytes = 0, peak = 0;
  std::uint32_t seed = 1;
  for (int i = 0; i < 2000; ++i) {
    seed = seed * 1664525u + 1013904223u;
    if (used.size() < 6 && (seed >> 30) != 0) {
      const std::size_t size = (8 + 8 * ((seed >> 20) % 5)) * kMiB;  // no rounding
      used.emplace_back((seed >> 16) % 2 == 0 ? pool.allocate(size) : pool.allocate_zeroed(size), size);
      *static_cast<int*>(used.back().first) = i;
      bytes += size;
      peak = std::max(peak, bytes);
    } else if (!used.empty()) {
      const std::size_t at = (seed >> 20) % used.size();
      pool.release(used[at].first, used[at].second);
      bytes -= used[at].second;
      used.erase(used.begin() + static_cast<std::ptrdiff_t>(at));
    }
    REQUIRE(bytes + pool.kept_bytes() <= peak);
  }
  for (const auto& [data, size] : used) pool.release(data, size);
  CHECK(pool.kept_bytes() > 0);
}

TEST_CASE("a block that no machine has is refused by its size, and what was kept remains usable") {
  BlockPool pool;
  pool.release(pool.allocate(8 * kMiB), 8 * kMiB);
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 4}) {
    CHECK_THROWS_AS(pool.allocate(bytes), BackendError);
    CHECK_THROWS_WITH(pool.allocate_zeroed(bytes), "cannot allocate " + std::to_string(bytes) + " bytes of memory");
  }
  void* block = pool.allocate(8 * kMiB);
  std::memset(block, 1, 8 * kMiB);
  pool.release(block, 8 * kMiB);
}

TEST_CASE("lasting blocks lie side by side, and a mapping goes with its last block") {
  LastingMemory memory;
  std::vector<Buffer> blocks;
  for (int i = 0; i < 40; ++i) {
    blocks.push_back(memory.allocate(5 * kMiB / 2 + 1));
    std::byte* data = blocks.back().data();
    REQUIRE(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    REQUIRE(std::all_of(data, data + blocks.back().bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
    std::memset(data, i + 1, blocks.back().bytes());
  }
  CHECK(memory.mapped_bytes() == 128 * kMiB);
  blocks.push_back(memory.allocate(201 * kMiB));  // a mapping of its own, whose rest serves others
  CHECK(memory.mapped_bytes() == 330 * kMiB);
  for (std::size_t i = 0; i < 40; ++i) {
    const std::byte* data = blocks[i].data();
    REQUIRE(std::all_of(data, data + blocks[i].bytes(), [&](std::byte byte) { return byte == std::byte(i + 1); }));
  }
  blocks.erase(blocks.begin(), blocks.begin() + 40);
  CHECK(memory.mapped_bytes() == 202 * kMiB);
  blocks.push_back(memory.allocate(0));
  blocks.erase(blocks.begin());
  CHECK(memory.mapped_bytes() == 202 * kMiB);
  blocks.clear();
  CHECK(memory.mapped_bytes() == 0);
  CHECK_THROWS_AS(memory.allocate(SIZE_MAX), BackendError);
}

TEST_CASE("threads share a pool") {
  BlockPool pool;
  std::atomic<int> mixed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::size_t bytes = (4 + 4 * static_cast<std::size_t>(i % 3)) * kMiB;
        auto* data = static_cast<int*>(pool.allocate(bytes));
        int& end = data[bytes / sizeof(int) - 1];
        *data = end = t;
        std::this_thread::yield();
        if (*data != t || end != t) ++mixed;
        pool.release(data, bytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(mixed == 0);
  CHECK(pool.kept_bytes() > 0);
}

}  // namespace
}  // namespace baton::cpu
