// SPDX-License-Identifier: Apache-2.0
// Memory of the CPU backends: aligned to 64 bytes. Large blocks that are complete before they are used, as weights, lie
// on huge pages. Those with unspecified content, as KV caches, do not: they fill up step by step, and each of the first
// steps would wait for megabytes to be cleared.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

namespace baton::cpu {

/// Blocks of memory. Large ones that were released are kept for the next of their size, because the operating system
/// clears each fresh page. All blocks together, used and kept, never exceed what was used at once before, and the
/// system may reclaim the pages of kept ones. Threads: any.
class BlockPool {
 public:
  BlockPool() = default;
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  /// Returns memory that `release` frees, with the same size. Throws BackendError naming the size when memory is short.
  /// For zero bytes the pointer is valid, too.
  void* allocate_zeroed(std::size_t bytes);
  /// As allocate_zeroed, with unspecified content.
  void* allocate(std::size_t bytes);
  void release(void* data, std::size_t bytes) noexcept;

  /// Returns the bytes that are kept for later.
  std::size_t kept_bytes() const;

 private:
  struct Block {
    void* data = nullptr;
    std::size_t size = 0;
  };

  void* take(std::size_t bytes, bool zeroed);
  void drop_oldest(std::size_t room);

  mutable std::mutex mutex_;
  std::vector<Block> kept_;                           // the oldest first; has room for all used blocks
  std::size_t used_count_ = 0;                        // large blocks
  std::size_t used_ = 0, used_peak_ = 0, keeps_ = 0;  // bytes of large blocks
};

}  // namespace baton::cpu
