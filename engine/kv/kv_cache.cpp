// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace baton {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

struct KvCache::Sizes {
  std::int32_t capacity = 0;
  std::size_t slab = 0, raw = 0, hidden = 0, received = 0;  // bytes; slab and raw are per layer
  std::size_t total = 0;
};

KvCache::Sizes KvCache::sizes_of(const Backend& backend, const KvLayout& layout, std::int32_t positions) {
  Sizes sizes;
  sizes.capacity = (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  const auto capacity = static_cast<std::size_t>(sizes.capacity);
  const auto layers = static_cast<std::size_t>(layout.layers);
  const std::size_t element = size_of(layout.shape.dtype);
  const auto key_width =
      static_cast<std::size_t>(layout.shape.kv_heads) * static_cast<std::size_t>(layout.shape.head_dim);
  sizes.slab = aligned(backend.kv_slab_bytes(layout.shape, sizes.capacity));
  if (layout.raw_keys) sizes.raw = aligned(capacity * key_width * element);
  sizes.hidden = aligned(capacity * static_cast<std::size_t>(layout.hidden_width) * element);
  if (layout.received)
    sizes.received = aligned(static_cast<std::size_t>(layout.shape.kv_heads) * capacity * sizeof(AttentionSum));
  sizes.total = layers * (2 * sizes.slab + sizes.raw) + sizes.hidden + sizes.received;
  return sizes;
}

std::size_t KvCache::bytes_for(const Backend& backend, const KvLayout& layout, std::int32_t positions) {
  constexpr std::size_t kStates = 3;  // before and behind the newest step, and one that is wanted
  return sizes_of(backend, layout, positions).total + kStates * layout.state_bytes;
}

KvCache::KvCache(Backend& backend, const KvLayout& layout, std::int32_t positions)
    : layout_(layout), states_(backend, layout.state_bytes) {
  const Sizes sizes = sizes_of(backend, layout, positions);
  buffer_ = backend.allocate_uninitialized(sizes.total);  // positions are written before they are read
  slab_bytes_ = sizes.slab;
  raw_bytes_ = sizes.raw;
  hidden_begin_ = static_cast<std::size_t>(layout.layers) * (2 * sizes.slab + sizes.raw);
  received_begin_ = hidden_begin_ + sizes.hidden;
  capacity_ = sizes.capacity;
  backend.clear(buffer_.data() + received_begin_, sizes.received);
}

KvSlab KvCache::slab(std::int32_t layer) const {
  const auto index = static_cast<std::size_t>(layer);
  std::byte* keys = buffer_.data() + 2 * index * slab_bytes_;
  std::byte* raw = buffer_.data() + 2 * static_cast<std::size_t>(layout_.layers) * slab_bytes_ + index * raw_bytes_;
  return {
      .keys = keys, .values = keys + slab_bytes_, .capacity = capacity_, .raw_keys = layout_.raw_keys ? raw : nullptr};
}

TensorView KvCache::hidden() const {
  if (layout_.hidden_width == 0) return {};
  return {buffer_.data() + hidden_begin_, layout_.shape.dtype, capacity_, layout_.hidden_width, layout_.hidden_width};
}

AttentionSum* KvCache::received() const {
  return layout_.received ? reinterpret_cast<AttentionSum*>(buffer_.data() + received_begin_) : nullptr;
}

void KvCache::commit(std::int32_t length) {
  if (length < length_ || length > capacity_) {
    throw std::logic_error(
        fmt::format("KV cache: commit of {} positions is invalid: expected {} to {}", length, length_, capacity_));
  }
  if (!states_.can_return(length))
    throw std::logic_error(fmt::format("KV cache: commit of {} positions, whose state is not there", length));
  states_.keep_between(length_, length);
  length_ = length;
}

void KvCache::go_back(std::int32_t length) {
  length = std::min(length_, length);
  if (truncate(length) != length)
    throw std::logic_error(fmt::format("KV cache: the state behind {} positions was not kept", length));
}

std::int32_t KvCache::truncate(std::int32_t length) {
  length_ = states_.last_up_to(std::min(length_, length));
  states_.keep_between(0, length_);
  return length_;
}

}  // namespace baton
