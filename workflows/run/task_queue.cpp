// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/task_queue.h"

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

}  // namespace baton
