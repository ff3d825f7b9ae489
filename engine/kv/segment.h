// SPDX-License-Identifier: Apache-2.0
// Segment: the KV of a text that moves from one prompt to another, immutable once made. Keys are kept before RoPE, so a
// segment has no position of its own; it is shared by reference and copied into the caches of its readers. One that
// nobody reads now may be kept in host memory: docs/decisions/0018-host-tier.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/kv/piecewise_upload.h"

namespace baton {

class Segment {
 public:
  /// Copies positions [begin, begin + n) of a cache that keeps raw keys; `ids` are the tokens of the text, of which the
  /// first n have KV there (the last token of an answer that was cut off was never run). Hidden states and attention
  /// received come along where the cache keeps them. Throws BackendError, std::invalid_argument.
  Segment(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n, std::vector<std::int32_t> ids);

  const std::vector<std::int32_t>& tokens() const { return tokens_; }
  /// How many of the tokens, from the first, have KV: n.
  std::int32_t length() const { return length_; }
  const KvLayout& layout() const { return layout_; }

  /// The same in host memory, for keeping: the backend does not read it. The copy may be under way (Device::wait).
  /// Throws BackendError.
  std::shared_ptr<const Segment> copy_to_host() const;
  /// And back, bit for bit, for reading: its memory comes when it is asked for. Throws BackendError.
  std::shared_ptr<const Segment> copy_to_device() const;
  /// In the memory of another backend, of what lies in memory that the host reads: nothing is left to come. Throws
  /// BackendError.
  std::shared_ptr<const Segment> copy_to(Device& other) const;
  /// It is what copy_to_host made: operations of the backend may not be given its views.
  bool on_host() const { return on_host_; }

  /// Some of it is still to come. Then layers come in groups of layers_per_group; upload() begins to copy the group of
  /// a layer, hidden states with the layer that reads them, in the order in which it is called, and the views below
  /// wait for what they show: operations that are given afterwards find it there, and the host goes on. So all of these
  /// are for the engine's thread.
  bool is_uploading() const { return upload_ && !upload_->complete(); }
  void upload(std::int32_t layer) const;
  static std::int32_t layers_per_group(std::int32_t layers) { return (layers + kUploadGroups - 1) / kUploadGroups; }

  ConstTensorView raw_keys(std::int32_t layer) const;  // [n, K * D] in the cache's type
  ConstTensorView values(std::int32_t layer) const;    // [n, K * D]
  /// [n, K * D] as floats, wherever the segment is. Where the backend may be called: on the engine's thread.
  std::vector<float> values_on_host(std::int32_t layer) const;
  ConstTensorView hidden() const;  // [n, C] at the input of layout().hidden_layer, or no data
  /// [n] attention that each token received (RelayCaching eq. 6); empty: not kept.
  std::span<const float> received() const { return received_; }

  std::size_t bytes() const {
    return memory_bytes_ + (received_.size() + entropy.size()) * sizeof(float) + tokens_.size() * sizeof(std::int32_t);
  }

  /// 0: computed exactly. n: from a context that itself held segments of n - 1 hops.
  int hops = 0;
  std::int32_t position = 0;   // of its first token in the prompt that it was taken from
  std::string origin;          // "inspector#2", for reports
  std::vector<float> entropy;  // [n] nats, of what each token was drawn from; empty: not generated, or not kept

 private:
  static constexpr std::int32_t kUploadGroups = 16;  // a layer waits for little, and copies are long enough to be fast

  Segment(const Segment&) = default;  // shares the memory
  std::size_t group_of(std::int32_t layer) const;
  const std::byte* memory_at(std::size_t begin, std::size_t group) const;

  Device* device_;
  KvLayout layout_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> received_;
  std::int32_t length_ = 0;
  std::size_t matrix_bytes_ = 0;  // of the keys, and of the values, of one layer
  std::size_t memory_bytes_ = 0;
  std::shared_ptr<const Buffer> memory_;  // [L] (raw keys, values), hidden states
  bool on_host_ = false;
  std::shared_ptr<PiecewiseUpload> upload_;  // of the memory, in groups of layers; null: it was always here
};

}  // namespace baton
