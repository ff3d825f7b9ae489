// KvCache: the live KV cache of one sequence. Contiguous slabs, one pair a layer, sized once; keys are rotated and
// ready for attention.
#pragma once

#include <cstdint>

#include "engine/backend/backend.h"

namespace baton {

class KvCache {
 public:
  /// Room for `positions` tokens in every layer. Throws BackendError when the memory cannot be had.
  KvCache(Backend& backend, const KvShape& shape, std::int32_t layers, std::int32_t positions);

  /// Bytes that a cache of this size takes.
  static std::size_t bytes_for(const Backend& backend, const KvShape& shape, std::int32_t layers, std::int32_t positions);

  KvSlab slab(std::int32_t layer) const;
  std::int32_t capacity() const { return capacity_; }
  std::size_t bytes() const { return buffer_.bytes(); }

  /// Positions [0, length) are written and final. A step writes beyond and commits when it has succeeded, so a step
  /// that failed leaves no trace.
  std::int32_t length() const { return length_; }
  void commit(std::int32_t length);

 private:
  Buffer buffer_;
  std::size_t slab_bytes_ = 0;
  std::int32_t layers_ = 0;
  std::int32_t capacity_ = 0;
  std::int32_t length_ = 0;
};

}  // namespace baton
