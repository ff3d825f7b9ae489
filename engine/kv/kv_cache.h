// SPDX-License-Identifier: Apache-2.0
// KvCache: the live KV cache of one sequence. Contiguous slabs, one pair a layer, sized once; keys are rotated and
// ready for attention. A cache whose tokens may be handed on keeps more of each position: the key before RoPE, the
// hidden state at the input of one layer, and the attention that it received.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/backend/backend.h"

namespace baton {

/// The layers and widths of a model's cache, and what is kept beside the rotated keys and the values.
struct KvLayout {
  KvShape shape;
  std::int32_t layers = 0;        // L
  bool raw_keys = false;          // keys before RoPE
  std::int32_t hidden_width = 0;  // C of the hidden states, kept in the cache's type; 0: not kept
  std::int32_t hidden_layer = 0;  // at whose input they are taken
  bool received = false;          // attention received, over all layers
  bool operator==(const KvLayout&) const = default;
};

class KvCache {
 public:
  /// Room for `positions` tokens in every layer. Throws BackendError when the memory cannot be had.
  KvCache(Backend& backend, const KvLayout& layout, std::int32_t positions);

  /// Bytes that a cache of this size takes.
  static std::size_t bytes_for(const Backend& backend, const KvLayout& layout, std::int32_t positions);

  const KvLayout& layout() const { return layout_; }
  KvSlab slab(std::int32_t layer) const;
  /// Hidden states [capacity, C] in the cache's type; no data where they are not kept.
  TensorView hidden() const;
  /// [capacity] in the backend's memory, or null.
  AttentionSum* received() const;

  std::int32_t capacity() const { return capacity_; }
  std::size_t bytes() const { return buffer_.bytes(); }

  /// Positions [0, length) are written and final. A step writes beyond and commits when it has succeeded, so a step
  /// that failed leaves no trace.
  std::int32_t length() const { return length_; }
  void commit(std::int32_t length);
  /// Only positions [0, length) stay; what lies behind is written anew. Not where received() is kept.
  void truncate(std::int32_t length) { length_ = std::min(length_, length); }

 private:
  struct Sizes;
  static Sizes sizes_of(const Backend& backend, const KvLayout& layout, std::int32_t positions);

  KvLayout layout_;
  Buffer buffer_;  // [L] (keys, values), [L] raw keys, hidden states, sums
  std::size_t slab_bytes_ = 0;
  std::size_t raw_bytes_ = 0;
  std::size_t hidden_begin_ = 0;
  std::size_t received_begin_ = 0;
  std::int32_t capacity_ = 0;
  std::int32_t length_ = 0;
};

}  // namespace baton
