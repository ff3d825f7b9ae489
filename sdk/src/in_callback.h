// SPDX-License-Identifier: Apache-2.0
// Which threads are inside a callback of the host: a wait there for what the callback holds up would never end.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace baton::inline v1 {

/// Threads inside the callbacks of one run or of one engine. All members are safe from any thread.
class InCallback {
 public:
  class Scope {
   public:
    explicit Scope(InCallback& in) : in_(in) {
      const std::lock_guard lock(in_.mutex_);
      in_.threads_.push_back(std::this_thread::get_id());
    }
    ~Scope() {
      const std::lock_guard lock(in_.mutex_);
      in_.threads_.erase(std::find(in_.threads_.begin(), in_.threads_.end(), std::this_thread::get_id()));
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    InCallback& in_;
  };

  /// True when the calling thread is one of them.
  bool here() const {
    const std::lock_guard lock(mutex_);
    return std::find(threads_.begin(), threads_.end(), std::this_thread::get_id()) != threads_.end();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::thread::id> threads_;  // one for each callback that a thread is in
};

/// The callback, counted in `in` while it is called; none for none.
template <typename... Arguments>
std::function<void(Arguments...)> counted(std::shared_ptr<InCallback> in, std::function<void(Arguments...)> callback) {
  if (!callback) return {};
  return [in = std::move(in), callback = std::move(callback)](Arguments... arguments) {
    const InCallback::Scope scope(*in);
    callback(arguments...);
  };
}

}  // namespace baton::inline v1
