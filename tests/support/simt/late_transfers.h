// SPDX-License-Identifier: Apache-2.0
// Transfers that are made as late as may be: when somebody follows or waits for them, or gives back their memory.
#pragma once

#include <cstring>
#include <deque>

#include "engine/cuda/host/runtime.h"

namespace baton::test {

class LateTransfers {
 public:
  TransferId queue(const cuda::Transfer& transfer) {
    waiting_.push_back({++last_, transfer});
    return last_;
  }
  /// Makes it and what comes before it: in its direction, and what those begin behind.
  void make(TransferId number) {
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].number != number) continue;
      const bool upload = waiting_[i].transfer.upload;
      make_if([&](const Waiting& one) { return one.number <= number && one.transfer.upload == upload; });
      return;
    }
  }
  void make_all() {
    make_if([](const Waiting&) { return true; });
  }
  /// Before the memory is given back.
  void make_of(const void* memory) {
    TransferId newest_upload = 0, newest_download = 0;
    for (const Waiting& one : waiting_) {
      if (one.transfer.memory == memory) (one.transfer.upload ? newest_upload : newest_download) = one.number;
    }
    make(newest_upload);
    make(newest_download);
  }
  std::size_t waiting() const { return waiting_.size(); }

 private:
  struct Waiting {
    TransferId number;
    cuda::Transfer transfer;
  };
  template <class Condition>
  void make_if(const Condition& condition) {
    while (true) {
      std::size_t i = 0;
      while (i < waiting_.size() && !condition(waiting_[i])) ++i;
      if (i == waiting_.size()) return;
      const Waiting one = waiting_[i];
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      make(one.transfer.after);
      const cuda::Transfer& t = one.transfer;
      std::memcpy(t.upload ? t.device : t.host, t.upload ? t.host : t.device, t.bytes);
    }
  }

  std::deque<Waiting> waiting_;
  TransferId last_ = 0;
};

}  // namespace baton::test
