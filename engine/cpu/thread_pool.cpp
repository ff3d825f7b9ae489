// SPDX-License-Identifier: Apache-2.0
#include "engine/cpu/thread_pool.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "engine/base/system/machine.h"
#include "engine/base/system/process.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace baton::cpu {
namespace {

// Longer than the serial sections between two parallel ones of an engine step, and most pauses between steps: to wake
// a thread takes longer than such a section. With 600 pauses instead, a small model decodes a fifth more slowly on a
// virtual machine.
constexpr std::chrono::microseconds kSpinTime{200};
constexpr int kPausesPerLook = 32;  // at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits actively until `done()` or, at most, for kSpinTime.
template <class Done>
void spin_until(const Done& done) {
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  while (true) {
    for (int i = 0; i < kPausesPerLook; ++i, pause()) {
      if (done()) return;
    }
    if (std::chrono::steady_clock::now() >= end) return;
  }
}

constexpr std::uint32_t count_of(std::uint64_t tickets) { return static_cast<std::uint32_t>(tickets >> 32); }
constexpr std::uint32_t next_of(std::uint64_t tickets) { return static_cast<std::uint32_t>(tickets); }
constexpr bool any_left(std::uint64_t tickets) { return next_of(tickets) < count_of(tickets); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads < 1) throw std::invalid_argument(fmt::format("thread pool: expected at least 1 thread, got {}", threads));
  spins_ = threads <= usable_cores();
  workers_.reserve(threads - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) {
      workers_.emplace_back([this, thread] { work_until_stopped(thread); });
    }
  } catch (const std::system_error&) {  // no more threads
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stop_.store(true);
  wake_sleepers();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_shared(std::int64_t count, Job job) {
  if (count > INT32_MAX)
    throw std::invalid_argument(fmt::format("thread pool: expected at most {} tasks, got {}", INT32_MAX, count));
  job_ = job;
  unfinished_.store(static_cast<std::int32_t>(count));
  tickets_.store(static_cast<std::uint64_t>(count) << 32);
  wake_sleepers();
  take_tasks(0);
  if (spins_) spin_until([this] { return unfinished_.load() == 0; });
  for (std::int32_t left = unfinished_.load(); left != 0; left = unfinished_.load()) wait_while(unfinished_, left);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::work_until_stopped(int thread) {
  while (!stop_.load()) {
    if (take_tasks(thread)) continue;
    if (spins_) spin_until([this] { return any_left(tickets_.load(std::memory_order_relaxed)) || stop_.load(); });
    if (any_left(tickets_.load())) continue;
    // Announces the sleep, then checks again: a thread that stores tickets after this check sees the sleeper.
    sleepers_.fetch_add(1);
    const std::int32_t seen = wake_count_.load();
    if (!any_left(tickets_.load()) && !stop_.load()) wait_while(wake_count_, seen);
    sleepers_.fetch_sub(1);
  }
}

bool ThreadPool::take_tasks(int thread) {
  bool took = false;
  while (any_left(tickets_.load())) {
    const std::uint64_t ticket = tickets_.fetch_add(1);
    if (!any_left(ticket)) break;
    took = true;
    try {
      job_.call(job_.task, next_of(ticket), thread);
    } catch (...) {
      const std::lock_guard lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1) == 1) wake_all(unfinished_);
  }
  return took;
}

void ThreadPool::wake_sleepers() {
  if (sleepers_.load() == 0) return;
  wake_count_.fetch_add(1);
  wake_all(wake_count_);
}

}  // namespace baton::cpu
