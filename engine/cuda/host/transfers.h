// SPDX-License-Identifier: Apache-2.0
// Transfers: asynchronous copies between pinned host memory and device memory on an upload and a download stream, and
// their order relative to the main stream and to the release of memory.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/cuda/host/check.h"
#include "engine/cuda/host/runtime.h"

namespace baton::cuda {

class StreamOwner {
 public:
  StreamOwner();
  ~StreamOwner() { ignore(cudaStreamDestroy(stream_)); }
  StreamOwner(const StreamOwner&) = delete;
  StreamOwner& operator=(const StreamOwner&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class EventOwner {
 public:
  explicit EventOwner(unsigned flags = cudaEventDisableTiming);
  ~EventOwner() { ignore(cudaEventDestroy(event_)); }
  EventOwner(const EventOwner&) = delete;
  EventOwner& operator=(const EventOwner&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Threads: one caller at a time, except release. Errors: BackendError.
class Transfers {
 public:
  explicit Transfers(cudaStream_t main) : main_(main) {}

  // See Runtime; queue() is Runtime::transfer.
  TransferId queue(const Transfer& transfer);
  void follow(TransferId transfer);
  void wait_for(TransferId transfer);
  void synchronize();

  /// Returns memory to the device's pool, after all work queued so far on the main stream and after the transfers that
  /// use the memory. Threads: any.
  void release(void* memory) noexcept;

 private:
  /// A transfer that is not known to be complete.
  struct Pending {
    TransferId id = 0;
    bool upload = true;
    void* memory = nullptr;  // null: released, or the main stream waits for the transfer
    std::unique_ptr<EventOwner> complete;
  };
  cudaStream_t stream_of(bool upload) const { return (upload ? upload_stream_ : download_stream_).get(); }
  const Pending* find(TransferId id) const;
  void recycle_events();

  cudaStream_t main_;
  StreamOwner upload_stream_, download_stream_;
  EventOwner main_point_;  // the end of the main stream's work before a transfer
  std::mutex mutex_;
  std::deque<Pending> pending_;                     // guarded by mutex_
  std::vector<std::unique_ptr<EventOwner>> spare_;  // guarded by mutex_
  TransferId last_ = 0;
};

}  // namespace baton::cuda
