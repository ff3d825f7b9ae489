// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/workers.h"

#include <fmt/format.h>

#include <system_error>

#include "engine/base/errors.h"
#include "engine/request.h"

namespace baton {

TaskQueue::~TaskQueue() {
  while (first_) first_ = std::move(first_->next_);  // not by recursion: there may be many
}

void TaskQueue::post(std::unique_ptr<Task> task) noexcept {
  if (!task) return;
  const std::lock_guard lock(mutex_);
  Task* const posted = task.get();
  (last_ == nullptr ? first_ : last_->next_) = std::move(task);
  last_ = posted;
  changed_.notify_one();  // with the lock: the queue may end as soon as the task has run
}

std::unique_ptr<Task> TaskQueue::take(std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  const auto over = [this] { return first_ != nullptr || closed_; };
  if (until) {
    changed_.wait_until(lock, *until, over);
  } else {
    changed_.wait(lock, over);
  }
  if (!first_) return nullptr;
  std::unique_ptr<Task> task = std::move(first_);
  first_ = std::move(task->next_);
  if (!first_) last_ = nullptr;
  return task;
}

void TaskQueue::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

Workers::Workers(std::size_t threads) {
  threads_.reserve(threads);
  try {
    while (threads_.size() < threads) {
      threads_.emplace_back([this] {
        while (const std::unique_ptr<Task> task = tasks_.take()) {
          if (!stopping_) try_to([&] { task->run(); });
        }
      });
    }
  } catch (const std::system_error& error) {
    if (threads_.empty()) {
      throw EngineError(EngineError::Kind::memory,
                        fmt::format("the run cannot start a thread: {}", error.code().message()));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Workers::~Workers() { stop(); }

void Workers::stop() noexcept {
  stopping_ = true;
  tasks_.close();
  for (std::thread& thread : threads_) thread.join();
}

}  // namespace baton
