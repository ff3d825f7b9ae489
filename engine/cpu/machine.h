// SPDX-License-Identifier: Apache-2.0
// What the CPU backends have of the machine: blocks of memory, and threads that split one operation.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/tensor/tensor.h"

namespace baton::cpu {

/// Blocks of memory. Large ones that were released are kept for the next of their size, because the operating system
/// clears each fresh page. All blocks together, used and kept, never exceed what was used at once before, and the
/// system may reclaim the pages of kept ones. Threads: any.
class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Returns memory that `release` frees, with the same size. Throws BackendError naming the size when memory is short.
  /// For zero bytes the pointer is valid, too.
  void* allocate_zeroed(std::size_t bytes);
  /// As allocate_zeroed, with unspecified content.
  void* allocate(std::size_t bytes);
  void release(void* data, std::size_t bytes) noexcept;

  /// Returns the bytes that are kept for later.
  std::size_t kept_bytes() const;

 private:
  struct Block {
    void* data = nullptr;
    std::size_t size = 0;
  };

  void* take(std::size_t bytes, bool zeroed);
  void drop_oldest(std::size_t room);

  mutable std::mutex mutex_;
  std::vector<Block> kept_;                           // the oldest first; has room for all used blocks
  std::size_t used_count_ = 0;                        // large blocks
  std::size_t used_ = 0, used_peak_ = 0, keeps_ = 0;  // bytes of large blocks
};

/// Memory of many blocks that live long and are released together, such as weights. They lie side by side in mappings
/// of huge pages. A mapping is unmapped when its last block is released. Threads: any.
class LastingMemory final : public BufferOwner {
 public:
  LastingMemory() = default;
  ~LastingMemory();
  LastingMemory(const LastingMemory&) = delete;
  LastingMemory& operator=(const LastingMemory&) = delete;

  /// Returns zeroed memory, aligned to 64 bytes. Throws BackendError naming the size when memory is short.
  Buffer allocate(std::size_t bytes);
  void release(void* data, std::size_t bytes) noexcept override;

  /// Returns the bytes of all mappings.
  std::size_t mapped_bytes() const;

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    std::size_t size = 0, used = 0;  // bytes
    std::size_t blocks = 0;          // that were not released
  };

  mutable std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::size_t mapped_ = 0;  // bytes
};

// ThreadPool: runs the tasks of one operation on a fixed set of threads; the caller is one of them.
// Threads: one caller at a time. Any thread may run any task, so a task must own the memory that it writes.

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

// Scratch: working memory of the kernels. It grows to the largest call so far; smaller calls do not allocate.

/// The number of floats that each thread may use within one task.
inline constexpr std::int64_t kThreadFloats = 160 * 1024;

class Scratch {
 public:
  /// Allocates kThreadFloats floats for each of `threads` threads from `owner`, which must outlive the scratch.
  template <class Owner>
  Scratch(Owner& owner, int threads) : memory_(owner.allocate(threads * kThreadFloats * sizeof(float))) {}

  float* of_thread(int thread) const { return reinterpret_cast<float*>(memory_.data()) + thread * kThreadFloats; }

  /// Returns at least `count` floats, aligned to a cache line, for data that the caller prepares and all tasks read.
  /// Valid until the next call.
  float* shared(std::int64_t count) { return grown(shared_, count); }

  /// The same, for a second array.
  float* operand(std::int64_t count) { return grown(operand_, count); }

 private:
  static constexpr std::size_t kLine = 64;  // bytes

  static float* grown(std::vector<float>& floats, std::int64_t count) {
    const auto needed = static_cast<std::size_t>(count) + kLine / sizeof(float);
    if (floats.size() < needed) floats.resize(needed);
    void* data = floats.data();
    std::size_t bytes = floats.size() * sizeof(float);
    return static_cast<float*>(std::align(kLine, static_cast<std::size_t>(count) * sizeof(float), data, bytes));
  }

  Buffer memory_;
  std::vector<float> shared_, operand_;
};

/// The device half of backends whose operations run here: host memory, and copies that are done when they return.
class HostDevice : public Backend {
 public:
  Buffer allocate(std::size_t bytes) override { return {this, memory_.allocate_zeroed(bytes), bytes}; }
  void release(void* data, std::size_t bytes) noexcept override { memory_.release(data, bytes); }
  void copy_to_device(std::byte* out, std::span<const std::byte> host) override {
    if (!host.empty()) std::memcpy(out, host.data(), host.size());
  }
  void copy_to_host(std::span<std::byte> out, const std::byte* device) override {
    if (!out.empty()) std::memcpy(out.data(), device, out.size());
  }
  DType operand_type(DType /*weight*/) const override { return DType::f32; }

 protected:
  BlockPool memory_;  // outlives the buffers of derived classes
};

}  // namespace baton::cpu
