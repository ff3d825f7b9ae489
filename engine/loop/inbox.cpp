// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/inbox.h"

#include <utility>

#include "engine/base/errors.h"
#include "engine/loop/prefill_ahead.h"

namespace baton {

RequestId Inbox::next_id() {
  const std::lock_guard lock(mutex_);
  return ++last_id_;
}

void Inbox::add(std::unique_ptr<Sequence> request) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw EngineError(EngineError::Kind::invalid, "the engine is closing and accepts no more requests");
  incoming_.push_back(std::move(request));
  wake_.notify_one();
}

void Inbox::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  wake_.notify_one();
}

void Inbox::order(Order order) {
  const std::lock_guard lock(mutex_);
  orders_.push_back(std::move(order));
  wake_.notify_one();
}

bool Inbox::order_from_other_thread(Order order) {
  const std::lock_guard lock(mutex_);
  if (engine_ == std::this_thread::get_id())
    throw EngineError(EngineError::Kind::invalid, "a callback of a request must not wait for the engine");
  if (closed_) return false;
  orders_.push_back(std::move(order));
  wake_.notify_one();
  return true;
}

void Inbox::forget(EarlyId id) noexcept {
  const std::lock_guard lock(mutex_);
  if (!try_to([&] { orders_.push_back([id](PrefillAhead& ahead) { ahead.forget(id); }); })) forget_all_ = true;
  wake_.notify_one();
}

bool Inbox::has_orders() const {
  const std::lock_guard lock(mutex_);
  return !orders_.empty();
}

void Inbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  wake_.notify_one();
}

bool Inbox::wait(Work& work, const std::function<bool()>& busy, const std::function<void()>& on_orders) {
  std::unique_lock lock(mutex_);
  engine_ = std::this_thread::get_id();
  wake_.wait(lock, [&] {
    return closed_ || !incoming_.empty() || !cancelled_.empty() || !work.cancelling.empty() || !orders_.empty() ||
           forget_all_ || !work.waiting.empty() || busy();
  });
  while (!incoming_.empty()) {
    work.waiting.push_back(std::move(incoming_.front()));
    incoming_.pop_front();
  }
  if (work.cancelling.empty()) work.cancelling.swap(cancelled_);
  work.orders.clear();
  work.orders.swap(orders_);
  work.forget_all = std::exchange(forget_all_, false);
  if (!work.orders.empty()) on_orders();
  return !closed_;
}

std::unique_ptr<Sequence> Inbox::take_first() {
  const std::lock_guard lock(mutex_);
  if (incoming_.empty()) return nullptr;
  std::unique_ptr<Sequence> first = std::move(incoming_.front());
  incoming_.pop_front();
  return first;
}

}  // namespace baton
