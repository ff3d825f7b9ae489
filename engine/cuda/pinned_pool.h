// PinnedPool: pinned memory of the host that lives long, as segments in the host tier do. What is given back is used
// again: pinning takes a device as long as copying.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "engine/cuda/runtime.h"
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
  /// A copy from or to this memory was given to the stream: it is not used for anything else before that is made.
  void copies(const void* data);
  /// Any thread, copies may be under way.
  void release(void* data, std::size_t bytes) noexcept override;

 private:
  struct Piece {
    std::size_t bytes = 0;
    std::uint64_t last_copy = 0;
    bool free = false;
  };
  using Pieces = std::map<void*, Piece>;
  void wait_for(const Piece& piece);

  Runtime& runtime_;
  std::mutex mutex_;
  Pieces pieces_;             // guarded by mutex_
  std::uint64_t copies_ = 0;  // given so far
  std::uint64_t waited_ = 0;  // of those, surely made
};

}  // namespace baton::cuda
