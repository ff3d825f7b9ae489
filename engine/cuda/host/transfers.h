// SPDX-License-Identifier: Apache-2.0
// Transfers: copies between pinned memory and the device's on two streams of their own, one a direction, and what the
// main stream and memory that is given back have to know of them.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

class StreamOwner {
 public:
  StreamOwner();
  ~StreamOwner() { cudaStreamDestroy(stream_); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class EventOwner {
 public:
  explicit EventOwner(unsigned flags = cudaEventDisableTiming);
  ~EventOwner() { cudaEventDestroy(event_); }
  EventOwner(const EventOwner&) = delete;
  EventOwner& operator=(const EventOwner&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// One caller at a time, but for release. Throws BackendError.
class Transfers {
 public:
  explicit Transfers(cudaStream_t main) : main_(main) {}

  // As Runtime has them.
  TransferId queue(const Transfer& transfer);
  void follow(TransferId transfer);
  void wait_for(TransferId transfer);
  void synchronize();

  /// Memory goes back to the pool: behind the main stream's work, and behind what is still copied from or to it. Any
  /// thread.
  void release(void* memory) noexcept;

 private:
  /// Not yet seen to be made.
  struct Pending {
    TransferId id = 0;
    bool upload = true;
    void* memory = nullptr;  // null: given back, or the main stream has followed
    std::unique_ptr<EventOwner> complete;
  };
  cudaStream_t stream_of(bool upload) const { return (upload ? upload_stream_ : download_stream_).get(); }
  const Pending* find(TransferId id) const;
  void recycle_events();

  cudaStream_t main_;
  StreamOwner upload_stream_, download_stream_;
  EventOwner main_point_;  // what the main stream was given before a transfer
  std::mutex mutex_;
  std::deque<Pending> pending_;                     // guarded by mutex_
  std::vector<std::unique_ptr<EventOwner>> spare_;  // guarded by mutex_
  TransferId last_ = 0;
};

}  // namespace baton::cuda
