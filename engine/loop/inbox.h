// SPDX-License-Identifier: Apache-2.0
// Inbox: the queue between the threads of an engine's callers and the engine's thread. It holds requests, orders and
// cancels, and draws the ids of requests and early prompts.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "engine/loop/sequence.h"

namespace baton {

class PrefillAhead;

/// The running, waiting or incoming requests of an engine, in their order.
using SequenceList = std::deque<std::unique_ptr<Sequence>>;

/// All members but wait() and take_first() are safe from any thread; these two belong to the engine's thread.
class Inbox {
 public:
  /// What the engine's thread does between two steps.
  using Order = std::function<void(PrefillAhead& ahead)>;

  /// Returns an id for a request or an early prompt.
  RequestId next_id();
  /// Throws EngineError after close().
  void add(std::unique_ptr<Sequence> request);
  void cancel(RequestId id);
  void order(Order order);
  /// Orders the engine's thread to forget an early prompt, or all of them if there is no memory for the order.
  void forget(EarlyId id) noexcept;
  /// True when orders wait.
  bool has_orders() const;
  /// From now on no request is accepted, and wait() returns false.
  void close();

  /// Calls `work` on the engine's thread between two steps, and waits for it. Rethrows what it throws; returns nothing
  /// when the engine ends meanwhile. Throws EngineError when the engine's thread calls it (in a callback of a request),
  /// because that thread would wait for itself.
  template <typename Result>
  std::optional<Result> on_thread(std::function<Result()> work) {
    auto done = std::make_shared<std::promise<Result>>();
    std::future<Result> result = done->get_future();
    const bool ordered = order_from_other_thread([work = std::move(work), done = std::move(done)](PrefillAhead&) {
      try {
        done->set_value(work());
      } catch (...) {
        done->set_exception(std::current_exception());
      }
    });
    if (!ordered) return std::nullopt;
    try {
      return result.get();
    } catch (const std::future_error&) {  // the engine has ended first and destroyed the order with its promise
      return std::nullopt;
    }
  }

  /// What has come in. A plain record of data.
  struct Work {
    SequenceList waiting;               // requests are added at the end
    std::vector<RequestId> cancelling;  // the next cancels are taken only when these are done
    std::vector<Order> orders;
    bool forget_all = false;
  };
  /// Waits until something comes in or `busy` returns true. Takes what has come in, and calls `on_orders` if that
  /// includes orders. Both functions are called under the inbox's lock. Returns false after close().
  bool wait(Work& work, const std::function<bool()>& busy, const std::function<void()>& on_orders);
  /// Returns the first request that has not been taken by wait(), or null.
  std::unique_ptr<Sequence> take_first();

 private:
  bool order_from_other_thread(Order order);

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  SequenceList incoming_;             // guarded by mutex_
  std::vector<Order> orders_;         // guarded by mutex_
  bool forget_all_ = false;           // guarded by mutex_
  std::vector<RequestId> cancelled_;  // guarded by mutex_
  bool closed_ = false;               // guarded by mutex_
  RequestId last_id_ = 0;             // guarded by mutex_
  std::thread::id engine_;            // guarded by mutex_: the thread that calls wait()
};

}  // namespace baton
