// SPDX-License-Identifier: Apache-2.0
// ThreadPool: runs the tasks of one operation on a fixed set of threads; the caller is one of them.
// Threads: one caller at a time. Any thread may run any task, so a task must own the memory that it writes.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace baton::cpu {

class ThreadPool {
 public:
  /// `threads` >= 1 counts the caller. Where the system starts fewer threads, the pool has those that did start: the
  /// results are the same for any number.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls task(index, thread) for every index in [0, count); `thread` is in [0, size()) and differs between threads
  /// that run concurrently. `work` is the total number of elementary operations: below kWorthWaking the caller runs all
  /// tasks itself. Returns when all tasks are done, and rethrows the first exception of a task.
  template <class Task>
  void run(std::int64_t count, std::int64_t work, const Task& task) {
    if (workers_.empty() || count <= 1 || work < kWorthWaking) {
      for (std::int64_t i = 0; i < count; ++i) task(i, 0);
    } else {
      run_shared(count, {&task, [](const void* self, std::int64_t index, int thread) {
                           (*static_cast<const Task*>(self))(index, thread);
                         }});
    }
  }

  /// About 20 microseconds of one thread, when an operation of `work` is 16 fused multiply-adds, one exp, or reading 4
  /// bytes of memory.
  static constexpr std::int64_t kWorthWaking = 1 << 16;

 private:
  struct Job {
    const void* task = nullptr;
    void (*call)(const void* task, std::int64_t index, int thread) = nullptr;
  };

  void stop();
  void run_shared(std::int64_t count, Job job);
  void work_until_stopped(int thread);
  bool take_tasks(int thread);
  void wake_sleepers();

  Job job_;  // written only while no ticket is out

  // Tickets of the current job: its count in the upper half, the next index in the lower. One fetch_add takes an
  // index together with the count it belongs to, so a late thread can never mistake one job for another.
  std::atomic<std::uint64_t> tickets_{0};
  std::atomic<std::int32_t> unfinished_{0};

  std::atomic<std::int32_t> wake_count_{0};
  std::atomic<std::int32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  bool spins_ = false;  // threads wait actively for a while: there are cores for all

  std::mutex error_mutex_;
  std::exception_ptr error_;

  std::vector<std::thread> workers_;
};

}  // namespace baton::cpu
