// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/machine.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

namespace baton::cpu {
namespace {

constexpr std::int64_t kMuch = 1 << 30;  // work worth waking for

TEST_CASE("the thread pool runs every task once, on threads it owns") {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    REQUIRE(pool.size() == threads);
    for (const std::int64_t count : {0, 1, 2, 7, 100, 5000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
      std::atomic<bool> known_thread{true};
      pool.run(count, kMuch, [&](std::int64_t index, int thread) {
        ++runs[static_cast<std::size_t>(index)];
        if (thread < 0 || thread >= threads) known_thread = false;
      });
      for (const auto& run : runs) REQUIRE(run == 1);
      REQUIRE(known_thread);
    }
  }
}

TEST_CASE("two tasks that run at the same time have different thread numbers") {
  ThreadPool pool(4);
  std::atomic<int> in_use[4] = {};
  std::atomic<bool> shared{false};
  for (int round = 0; round < 50; ++round) {
    pool.run(64, kMuch, [&](std::int64_t, int thread) {
      if (++in_use[thread] != 1) shared = true;
      std::this_thread::yield();
      --in_use[thread];
    });
  }
  REQUIRE_FALSE(shared);
}

TEST_CASE("many short jobs one after the other, with pauses in which the threads fall asleep") {
  for (const int threads : {2, 5}) {
    ThreadPool pool(threads);
    std::int64_t sum = 0;
    for (int round = 0; round < 3000; ++round) {
      std::atomic<std::int64_t> part{0};
      pool.run(round % 7, kMuch, [&](std::int64_t index, int) { part += index + 1; });
      sum += part;
      if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    std::int64_t expected = 0;
    for (int round = 0; round < 3000; ++round) expected += (round % 7) * (round % 7 + 1) / 2;
    REQUIRE(sum == expected);
  }
}

TEST_CASE("small work stays with the caller") {
  ThreadPool pool(3);
  const auto caller = std::this_thread::get_id();
  bool elsewhere = false;
  pool.run(100, ThreadPool::kWorthWaking - 1, [&](std::int64_t, int thread) {
    if (std::this_thread::get_id() != caller || thread != 0) elsewhere = true;
  });
  REQUIRE_FALSE(elsewhere);
}

TEST_CASE("an exception of a task reaches the caller, and the pool goes on") {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    const auto fail = [](std::int64_t index, int) {
      if (index % 3 == 0) throw std::runtime_error("task failed");
    };
    for (int round = 0; round < 20; ++round) REQUIRE_THROWS_WITH(pool.run(50, kMuch, fail), "task failed");
    std::atomic<int> runs{0};
    pool.run(50, kMuch, [&](std::int64_t, int) { ++runs; });
    REQUIRE(runs == 50);
  }
}

TEST_CASE("pools come and go") {
  for (int round = 0; round < 200; ++round) {
    ThreadPool pool(1 + round % 5);
    if (round % 2 == 0) pool.run(10, kMuch, [](std::int64_t, int) {});
  }
  REQUIRE_THROWS_AS(ThreadPool(0), std::invalid_argument);
}

}  // namespace
}  // namespace baton::cpu
