// SPDX-License-Identifier: Apache-2.0
// PinnedPool: pinned host memory that is used for long, as by segments in the host tier. Released memory is reused,
// because pinning memory takes as long as copying it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "engine/cuda/host/runtime.h"
#include "engine/tensor/buffer.h"

namespace baton::cuda {

/// Threads: one caller at a time, except release, which any thread may call.
class PinnedPool final : public BufferOwner {
 public:
  explicit PinnedPool(Runtime& runtime) : runtime_(runtime) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Returns memory of unspecified content that no transfer uses any more. Throws BackendError when memory is short.
  Buffer allocate(std::size_t bytes);
  /// Records that a transfer reads or writes this memory; it is not reused before the transfer is complete.
  void used_by(const void* data, TransferId transfer);
  /// Returns the latest transfer passed to used_by for this memory, or 0.
  TransferId last_use(const void* data);
  /// Makes the memory available again. Transfers that use it may still be in progress.
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
