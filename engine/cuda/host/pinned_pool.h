// SPDX-License-Identifier: Apache-2.0
// PinnedPool: pinned memory of the host that lives long, as segments in the host tier do. What is given back is used
// again: pinning takes a device as long as copying.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "engine/cuda/host/runtime.h"
#include "engine/tensor/buffer.h"

namespace baton::cuda {

/// One caller at a time, but for release.
class PinnedPool final : public BufferOwner {
 public:
  explicit PinnedPool(Runtime& runtime) : runtime_(runtime) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Any content. Throws BackendError when there is none.
  Buffer allocate(std::size_t bytes);
  /// This memory is read or written by a transfer: it serves nothing else before that is made.
  void used_by(const void* data, TransferId transfer);
  /// The newest of those.
  TransferId last_use(const void* data);
  /// Any thread, copies may be under way.
  void release(void* data, std::size_t bytes) noexcept override;

 private:
  struct Piece {
    std::size_t bytes = 0;
    TransferId last_use = 0;
    bool free = false;
  };
  Runtime& runtime_;
  std::mutex mutex_;
  std::map<void*, Piece> pieces_;  // guarded by mutex_
};

}  // namespace baton::cuda
