// SPDX-License-Identifier: Apache-2.0
// KvCache: the live KV cache of one sequence, in contiguous slabs (one pair per layer) whose size is fixed. Its keys
// are rotated and ready for attention. A cache whose tokens may be handed on also keeps, for each position, the key
// before RoPE, the hidden state at the input of one layer, and the attention that the position received.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/kv/sequence_states.h"

namespace baton {

/// What the layers of a model store in a cache, and what it keeps in addition to the rotated keys and the values. A
/// layer without KV heads stores no KV: it reads that of another layer, or it is not attention.
struct KvLayout {
  std::vector<KvShape> shapes;    // [L], all of one type
  bool raw_keys = false;          // keys before RoPE
  std::int32_t hidden_width = 0;  // C of the hidden states, in the cache's type; 0: not kept
  std::int32_t hidden_layer = 0;  // the layer at whose input they are taken
  bool received = false;          // attention received, over all layers
  std::size_t state_bytes = 0;    // of the recurrent layers behind one position; 0: there are none
  bool operator==(const KvLayout&) const = default;

  std::int32_t layers() const { return static_cast<std::int32_t>(shapes.size()); }  // L
  const KvShape& shape(std::int32_t layer) const { return shapes[static_cast<std::size_t>(layer)]; }
  bool stores_kv(std::int32_t layer) const { return shape(layer).kv_heads > 0; }
  DType dtype() const { return shapes.empty() ? DType::bf16 : shapes.front().dtype; }
  /// Returns the bytes of a token's keys in a layer; its values take as many.
  std::size_t row_bytes(std::int32_t layer) const {
    return static_cast<std::size_t>(shape(layer).width()) * size_of(dtype());
  }
  /// Returns the bytes of a token's keys and values in all layers.
  std::size_t token_bytes() const;
  /// Returns the KV heads of the layer that has most.
  std::int32_t max_kv_heads() const;
};

class KvCache {
 public:
  /// Allocates memory for `positions` tokens in every layer. Throws BackendError when there is not enough memory.
  KvCache(Backend& backend, const KvLayout& layout, std::int32_t positions);

  /// Returns the bytes that a cache of this size takes.
  static std::size_t bytes_for(const Backend& backend, const KvLayout& layout, std::int32_t positions);

  const KvLayout& layout() const { return layout_; }
  /// Returns the memory of a layer's KV; no memory and no positions if the layer stores none.
  KvSlab slab(std::int32_t layer) const;
  /// Returns the hidden states [capacity, C] in the cache's type, or a view without data where they are not kept.
  TensorView hidden() const;
  /// Returns the sums [K, capacity] of attention received, in the backend's memory, or null where they are not kept. K
  /// is the largest of all layers; a layer of fewer heads adds to the first of them.
  AttentionSum* received() const;

  std::int32_t capacity() const { return capacity_; }
  std::size_t bytes() const { return buffer_.bytes() + states_.bytes(); }

  /// The states of recurrent layers.
  SequenceStates& states() { return states_; }
  const SequenceStates& states() const { return states_; }

  /// Positions [0, length) are written and final. An engine step writes behind them and commits when it has succeeded,
  /// so a failed step changes nothing. commit() throws std::logic_error unless length() <= length <= capacity().
  std::int32_t length() const { return length_; }
  void commit(std::int32_t length);
  /// Drops all positions from `length` on; they may be written again. With recurrent layers it may drop more: it goes
  /// back to the last position up to `length` whose state is kept. Returns the new length. In a cache that keeps
  /// received() only rows that were left out of its sums may be dropped (StepRows::unsummed): attention that was added
  /// cannot be subtracted.
  std::int32_t truncate(std::int32_t length);
  /// As truncate(), to a position whose state must be there. Throws std::logic_error.
  void go_back(std::int32_t length);

 private:
  struct Sizes;
  static Sizes sizes_of(const Backend& backend, const KvLayout& layout, std::int32_t positions);

  KvLayout layout_;
  Buffer buffer_;                        // [L] (keys, values), [L] raw keys, hidden states, sums of attention
  std::vector<std::size_t> slab_begin_;  // [L + 1] where the keys of each layer begin, then its values
  std::vector<std::size_t> raw_begin_;   // [L] where its raw keys begin, or empty
  std::size_t hidden_begin_ = 0;
  std::size_t received_begin_ = 0;
  std::int32_t capacity_ = 0;
  std::int32_t length_ = 0;
  SequenceStates states_;
};

}  // namespace baton
