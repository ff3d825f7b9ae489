// SPDX-License-Identifier: Apache-2.0
// What is behind the handles of baton/c.h that more than one file opens.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "sdk/src/c_support.h"

namespace baton::c_face {

/// Which threads are inside a callback of the host right now.
class InCallback {
 public:
  class Scope {
   public:
    explicit Scope(InCallback& in) : in_(in) {
      const std::lock_guard lock(in_.mutex_);
      here_ = in_.threads_.insert(std::this_thread::get_id());
    }
    ~Scope() {
      const std::lock_guard lock(in_.mutex_);
      in_.threads_.erase(here_);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    InCallback& in_;
    std::multiset<std::thread::id>::iterator here_;
  };

  /// True when the calling thread is one of them.
  bool here() {
    const std::lock_guard lock(mutex_);
    return threads_.count(std::this_thread::get_id()) != 0;
  }

 private:
  std::mutex mutex_;
  std::multiset<std::thread::id> threads_;
};

}  // namespace baton::c_face

struct baton_workflow {
  baton::Workflow workflow;
  std::shared_ptr<baton::c_face::InCallback> in_tool;
};
