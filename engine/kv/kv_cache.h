// SPDX-License-Identifier: Apache-2.0
// KvCache: the live KV cache of one sequence, in contiguous slabs (one pair per layer) whose size is fixed. Its keys
// are rotated and ready for attention. A cache whose tokens may be handed on also keeps, for each position, the key
// before RoPE, the hidden state at the input of one layer, and the attention that the position received.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/backend/backend.h"

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

// SequenceStates: what the recurrent layers of a model keep of a sequence's first tokens. Unlike keys and values, a
// state cannot be cut: it stands for all tokens before a position, so a cache can only go back to a position whose
// state was kept. States are kept behind the last two steps, and where the plan says that prompts branch
// (docs/decisions/memory.md).

/// The states of one sequence. A state does not change once its step has succeeded, so caches, prefixes and contexts
/// share it. Threads: the engine's.
class SequenceStates {
 public:
  /// `bytes`: of one state, all layers together; 0: the model has no recurrent layers. The backend must outlive the
  /// object and all states.
  SequenceStates(Backend& backend, std::size_t bytes) : backend_(&backend), bytes_(bytes) {}

  /// False for a model without recurrent layers; then every position can be returned to.
  bool kept() const { return bytes_ > 0; }

  /// Returns the state behind the first `position` tokens. Null behind 0 tokens, where all layers begin with zeros, and
  /// where none was kept (can_return tells these apart).
  std::shared_ptr<const Buffer> at(std::int32_t position) const;
  /// Returns the last position up to `position` whose state is kept; 0 always is.
  std::int32_t last_up_to(std::int32_t position) const;
  bool can_return(std::int32_t position) const { return last_up_to(position) == position; }
  /// Returns the positions up to `end` whose states are kept and worth it beyond the next steps, ascending: those that
  /// are wanted, and `end` itself.
  std::vector<std::int32_t> lasting(std::int32_t end) const;

  /// Keeps a state that another sequence computed.
  void put(std::int32_t position, std::shared_ptr<const Buffer> state);
  /// Returns memory for the state that a step computes behind `position`. Throws BackendError.
  std::byte* make(std::int32_t position);

  /// Asks steps to keep the state behind `position` for as long as the sequence lives.
  void want(std::int32_t position);
  /// Returns the wanted positions in (begin, end), ascending.
  std::vector<std::int32_t> wanted(std::int32_t begin, std::int32_t end) const;

  /// Drops the states before `begin` that are not wanted, and those behind `end`. Their memory is used again.
  void keep_between(std::int32_t begin, std::int32_t end);

  /// Bytes of all states, those included that are shared with others.
  std::size_t bytes() const { return bytes_ * (states_.size() + spare_.size()); }

 private:
  struct State {
    std::int32_t position = 0;
    std::shared_ptr<Buffer> memory;
  };

  Backend* backend_;
  std::size_t bytes_;
  std::vector<State> states_;         // ascending positions
  std::vector<std::int32_t> wanted_;  // ascending
  std::vector<std::shared_ptr<Buffer>> spare_;
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
