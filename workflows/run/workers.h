// SPDX-License-Identifier: Apache-2.0
// Workers: the threads on which a run's tools run and its prompts are built.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "workflows/run/task_queue.h"

namespace baton {

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
