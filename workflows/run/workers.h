// SPDX-License-Identifier: Apache-2.0
// The threads of a run: the queue of what others ask one thread to do, and the workers on which tools run and prompts
// are built. Making a task allocates memory; posting it does not and cannot fail, so a task that was made in advance
// always arrives (docs/decisions/memory.md).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/clock.h"

namespace baton {

class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;

 private:
  friend class TaskQueue;
  std::unique_ptr<Task> next_;
};

/// Returns a task that calls `function` once.
template <class Function>
std::unique_ptr<Task> make_task(Function function) {
  struct Call final : Task {
    explicit Call(Function made) : function(std::move(made)) {}
    void run() override { function(); }
    Function function;
  };
  return std::make_unique<Call>(std::move(function));
}

/// Threads: any.
class TaskQueue {
 public:
  TaskQueue() = default;
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  /// Appends a task; null: does nothing.
  void post(std::unique_ptr<Task> task) noexcept;

  /// Removes the first task. Where there is none, waits for one: until `until` (std::nullopt: without end) or close().
  /// Returns null when there is still none.
  std::unique_ptr<Task> take(std::optional<Clock::time_point> until = {});

  /// From now on take() returns null instead of waiting.
  void close() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<Task> first_;
  Task* last_ = nullptr;  // null: empty
  bool closed_ = false;
};

class Workers {
 public:
  /// Starts `threads` >= 1 threads, or as many of them as the system starts. Throws EngineError (memory) when it starts
  /// none.
  explicit Workers(std::size_t threads);
  /// Waits for the tasks that have begun, and drops the others.
  ~Workers();

  /// The task must not throw.
  void post(std::unique_ptr<Task> task) noexcept { tasks_.post(std::move(task)); }

 private:
  void stop() noexcept;

  TaskQueue tasks_;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
