// SPDX-License-Identifier: Apache-2.0
// PiecewiseUpload: a copy from host to device memory in pieces, concurrent with the operations, so that a reader of the
// first piece does not wait for the last one (docs/decisions/memory.md). Threads: the engine's thread only; the
// destructor may run on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/base/token_text.h"
#include "engine/kv/kv_cache.h"

namespace baton {

class PiecewiseUpload {
 public:
  struct Range {
    std::size_t begin = 0, bytes = 0;
  };
  using Piece = std::vector<Range>;
  enum class Source : std::uint8_t { own, of_another_device };
  /// Keeps both buffers alive until the main stream waits for all pieces. Another device does not know when the copies
  /// of its memory are complete, so the destructor waits for them, on the engine's thread. Copies nothing yet.
  PiecewiseUpload(Device& device, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                  std::vector<Piece> pieces, Source source = Source::own);
  ~PiecewiseUpload();
  PiecewiseUpload(const PiecewiseUpload&) = delete;
  PiecewiseUpload& operator=(const PiecewiseUpload&) = delete;

  /// Queues the copies of a piece on the upload stream, unless they were queued before. Throws BackendError.
  void upload(std::size_t piece);
  /// Makes the operations that are queued from now on wait for the piece, and uploads it first where that has not been
  /// done. The host does not wait. Throws BackendError.
  void follow(std::size_t piece);
  void follow_all();
  /// True when follow() was called for every piece.
  bool complete() const { return unfollowed_ == 0; }

 private:
  enum class State : std::uint8_t { waiting, queued, followed };

  Device& device_;
  std::shared_ptr<const Buffer> from_, to_;
  std::vector<Piece> pieces_;
  std::vector<State> state_;           // [number of pieces]
  std::vector<TransferId> transfers_;  // [number of pieces] the copy of the piece's last range
  std::size_t unfollowed_;
  Source source_;
};

// Segment: the KV of a text that is handed from one prompt to others; immutable. Keys are kept before RoPE, so a
// segment has no position of its own. It is shared by reference and copied into the caches of its readers. A segment
// without a current reader may lie in host memory (docs/decisions/memory.md).

class Segment {
 public:
  /// Copies positions [begin, begin + n) of a cache that keeps raw keys, with their hidden states and the attention
  /// they received where the cache keeps those. `ids` are the tokens of the text; the first n of them have KV (the last
  /// token of a truncated answer was never run). Throws BackendError, std::invalid_argument.
  Segment(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n, TokenText ids);

  /// All tokens of a text, whose KV is given: for each layer the keys before RoPE [n, K * D] and the values [n, K * D],
  /// then the hidden states [n, C] if the layout has them, in its type. It has no attention received. Throws
  /// BackendError, and std::invalid_argument for another size.
  Segment(Backend& backend, const KvLayout& layout, TokenText ids, std::span<const std::byte> bytes);

  /// A state of recurrent layers (engine/kv/kv_cache.h) as something that a store accounts for and moves between
  /// its tiers. It has no tokens.
  Segment(Device& device, std::shared_ptr<const Buffer> state);
  /// Returns that state in the backend's memory.
  std::shared_ptr<const Buffer> state() const;

  const TokenText& tokens() const { return tokens_; }
  /// Returns n, the number of tokens with KV; they are the first ones.
  std::int32_t length() const { return length_; }
  const KvLayout& layout() const { return layout_; }

  /// Returns a copy in host memory, which operations cannot read. The download may still be in progress on return
  /// (Device::wait). Throws BackendError.
  std::shared_ptr<const Segment> copy_to_host() const;
  /// Returns a copy in device memory of a segment in host memory, bit for bit. Its content is uploaded when it is
  /// requested, see is_uploading(). Throws BackendError.
  std::shared_ptr<const Segment> copy_to_device() const;
  /// Returns a copy in the memory of another backend, which has a memory of its own. This segment must be a result of
  /// copy_to_host, whose download is complete; then the copy is uploaded like that of copy_to_device, and must be
  /// destroyed on the thread of the other's engine, while this segment's backend exists. Or this segment lies in the
  /// memory of a backend that works in the host's; then the copy is complete on return. Throws BackendError.
  std::shared_ptr<const Segment> copy_to(Device& other) const;
  /// True for the result of copy_to_host: its views must not be passed to the backend's operations.
  bool on_host() const { return on_host_; }

  /// True while part of the content is not yet uploaded or not yet waited for. Layers are uploaded in groups of
  /// upload_group(), hidden states with the layer that reads them. upload() queues the copy of a layer's group; the
  /// copies run in the order of these calls. The views below upload what they show where that is still to be done, and
  /// make operations that are queued afterwards wait for it; the host does not wait. Threads: while this is true, all
  /// of these functions belong to the engine's thread.
  bool is_uploading() const { return upload_ && !upload_->complete(); }
  void upload(std::int32_t layer) const;

  ConstTensorView raw_keys(std::int32_t layer) const;  // [n, K * D] in the cache's type; a layer without KV: [n, 0]
  ConstTensorView values(std::int32_t layer) const;    // [n, K * D]
  /// Copies the keys and values of the first tokens in a layer, as many as fill the spans, from either tier. Blocks
  /// until they are copied. Threads: the engine's thread only.
  void copy_first_rows(std::int32_t layer, std::span<std::byte> keys, std::span<std::byte> values) const;
  ConstTensorView hidden() const;  // [n, C] at the input of layout().hidden_layer, or no data
  /// [n] attention that each token received (RelayCaching eq. 6); empty: not kept.
  std::span<const float> received() const { return received_; }

  std::size_t bytes() const {
    return memory_bytes_ + (received_.size() + entropy.size()) * sizeof(float) + tokens_.size() * sizeof(std::int32_t);
  }

  /// 0: computed exactly. n: from a context that itself held segments of n - 1 hops.
  int hops = 0;
  std::int32_t position = 0;   // of its first token in the prompt of its author
  std::string origin;          // "inspector#2", for reports
  std::vector<float> entropy;  // [n] nats, of the distribution it was drawn from; empty: not generated, or not kept

 private:
  Segment(const Segment&) = default;  // shares the memory
  void set_sizes();
  std::shared_ptr<const Segment> uploaded_to(Device& device, PiecewiseUpload::Source source) const;
  void fetch(std::span<std::byte> out, const std::byte* from) const;
  std::size_t group_of(std::int32_t layer) const;
  std::size_t group_of_hidden() const;
  const std::byte* memory_at(std::size_t begin, std::size_t group) const;

  Device* device_;
  KvLayout layout_;
  TokenText tokens_;
  std::vector<float> received_;
  std::int32_t length_ = 0;
  std::vector<std::size_t> layer_begin_;  // [L + 1] where the raw keys of each layer begin, then its values
  std::size_t memory_bytes_ = 0;
  std::shared_ptr<const Buffer> memory_;  // [L] (raw keys, values), hidden states
  bool on_host_ = false;
  std::shared_ptr<PiecewiseUpload> upload_;  // of memory_, in groups of layers; null: it was never in host memory
};

/// The layers that are uploaded together: a layer waits for 1/16 of the bytes, and copies stay long and fast.
inline std::int32_t upload_group(std::int32_t layers) {
  constexpr std::int32_t kGroups = 16;
  return (layers + kGroups - 1) / kGroups;
}

/// Returns the values [n, K * D] of a layer as floats, from either tier. Blocks until they are copied. Threads: the
/// engine's thread only.
std::vector<float> values_on_host(const Segment& segment, std::int32_t layer);
/// Returns the bytes of a state, from either tier. Blocks until they are copied. Threads: as above.
std::vector<std::byte> state_on_host(Device& device, const Segment& segment);

// Copies of KV in host memory, with keys before RoPE, for what is learned of texts. Threads: the engine's thread only.

/// Returns for each layer [n, 2 K D] bf16 (f32 is rounded): the keys before RoPE, then the values, of positions
/// [begin, begin + n) of a cache that keeps raw keys. Blocks until they are copied. Throws BackendError.
std::vector<std::uint16_t> kv_on_host(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n);
/// Returns the same for the n tokens of a segment that have KV.
std::vector<std::uint16_t> kv_on_host(Device& device, const Segment& segment);

}  // namespace baton
