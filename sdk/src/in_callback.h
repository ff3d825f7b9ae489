// SPDX-License-Identifier: Apache-2.0
// Which threads are inside a callback of the host: a wait there for what the callback holds up would never end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/errors.h"
#include "engine/base/system/process.h"

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

// What has threads of the library belongs to the process that made it. In a child of fork() those threads do not exist
// and their locks may be held, so that not even a destructor touches it there.

class Owner {
 public:
  bool here() const { return process_number() == process_; }

 private:
  std::int64_t process_ = process_number();
};

/// An object that is destroyed in the process that made it, and left alone in its children.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_owned(Arguments&&... arguments) {
  return std::shared_ptr<T>(new T(std::forward<Arguments>(arguments)...), [owner = Owner()](T* object) {
    if (owner.here()) {
      delete object;
      return;
    }
    try_to([&] {
      static std::vector<T*>& left_alone = *new std::vector<T*>;  // reachable, so that it is no leak
      left_alone.push_back(object);
    });
  });
}

}  // namespace baton::inline v1
