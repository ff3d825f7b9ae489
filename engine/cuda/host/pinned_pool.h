// SPDX-License-Identifier: Apache-2.0
// PinnedPool: pinned host memory that is used for long, as by segments in the host tier. Memory is pinned in blocks,
// which are divided into pieces and used again, because pinning takes as long as copying. Once blocks are needed
// repeatedly, the next one is pinned on a thread of its own before it is needed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>

#include "engine/cuda/host/runtime.h"
#include "engine/tensor/buffer.h"

namespace baton::cuda {

/// Threads: one caller at a time, except release, which any thread may call.
class PinnedPool final : public BufferOwner {
 public:
  /// `ahead`: blocks may be pinned on another thread, too.
  explicit PinnedPool(Runtime& runtime, bool ahead = false) : runtime_(runtime), ahead_(ahead) {}
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  /// Returns memory of unspecified content that no transfer uses any more. Throws BackendError when memory is short.
  Buffer allocate(std::size_t bytes);
  /// Records that a transfer reads or writes this memory; it is not reused before the transfer is complete. Ignores
  /// memory of another pool.
  void used_by(const void* data, TransferId transfer, bool upload);
  /// Returns the latest transfer passed to used_by for this memory, or 0; 0 for memory of another pool.
  TransferId last_use(const void* data);
  /// Makes the memory available again. Transfers that use it may still be in progress.
  void release(void* data, std::size_t bytes) noexcept override;

 private:
  struct Piece {
    std::size_t bytes = 0;
    void* block = nullptr;
    bool free = true;
    TransferId last_upload = 0, last_download = 0;  // those of one direction are complete in their order
  };
  using Pieces = std::map<void*, Piece>;

  Pieces::iterator smallest_free(std::size_t bytes);
  Pieces::iterator add_block(void* block, std::size_t bytes);
  void split(Pieces::iterator piece, std::size_t bytes);
  void merge_with_next(Pieces::iterator piece);
  void wait_for(const Piece& piece);
  void free_unused_blocks(std::size_t bytes);
  void want_block(std::size_t bytes);
  void make_blocks(const std::stop_token& stop) noexcept;

  Runtime& runtime_;
  const bool ahead_;
  std::mutex mutex_;
  Pieces pieces_;                        // guarded by mutex_
  std::map<void*, std::size_t> blocks_;  // guarded by mutex_
  std::size_t pinned_ = 0;               // blocks that the caller had to wait for
  std::size_t largest_ = 0;              // bytes of the largest piece so far
  std::size_t wanted_ = 0;               // bytes of the block that the thread is to pin; guarded by mutex_
  std::condition_variable_any changed_;
  std::jthread maker_;
};

}  // namespace baton::cuda
