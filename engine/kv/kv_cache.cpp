// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace baton {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::size_t KvLayout::token_bytes() const {
  std::size_t bytes = 0;
  for (std::int32_t layer = 0; layer < layers(); ++layer) bytes += 2 * row_bytes(layer);
  return bytes;
}

std::int32_t KvLayout::max_kv_heads() const {
  std::int32_t heads = 0;
  for (const KvShape& one : shapes) heads = std::max(heads, one.kv_heads);
  return heads;
}

struct KvCache::Sizes {
  std::int32_t capacity = 0;
  std::vector<std::size_t> slab_begin, raw_begin;  // as in the cache
  std::size_t hidden_begin = 0, received_begin = 0, total = 0;
};

KvCache::Sizes KvCache::sizes_of(const Backend& backend, const KvLayout& layout, std::int32_t positions) {
  Sizes sizes;
  sizes.capacity = (positions + kKeyBlock - 1) / kKeyBlock * kKeyBlock;
  const auto capacity = static_cast<std::size_t>(sizes.capacity);
  for (const KvShape& shape : layout.shapes) {
    sizes.slab_begin.push_back(sizes.total);
    if (shape.kv_heads > 0) sizes.total += 2 * aligned(backend.kv_slab_bytes(shape, sizes.capacity));
  }
  sizes.slab_begin.push_back(sizes.total);
  for (std::int32_t layer = 0; layout.raw_keys && layer < layout.layers(); ++layer) {
    sizes.raw_begin.push_back(sizes.total);
    sizes.total += aligned(capacity * layout.row_bytes(layer));
  }
  sizes.hidden_begin = sizes.total;
  sizes.total += aligned(capacity * static_cast<std::size_t>(layout.hidden_width) * size_of(layout.dtype()));
  sizes.received_begin = sizes.total;
  if (layout.received)
    sizes.total += aligned(static_cast<std::size_t>(layout.max_kv_heads()) * capacity * sizeof(AttentionSum));
  return sizes;
}

std::size_t KvCache::bytes_for(const Backend& backend, const KvLayout& layout, std::int32_t positions) {
  constexpr std::size_t kStates = 3;  // before and behind the newest step, and one that is wanted
  return sizes_of(backend, layout, positions).total + kStates * layout.state_bytes;
}

KvCache::KvCache(Backend& backend, const KvLayout& layout, std::int32_t positions)
    : layout_(layout), states_(backend, layout.state_bytes) {
  Sizes sizes = sizes_of(backend, layout, positions);
  buffer_ = backend.allocate_uninitialized(sizes.total);  // positions are written before they are read
  slab_begin_ = std::move(sizes.slab_begin);
  raw_begin_ = std::move(sizes.raw_begin);
  hidden_begin_ = sizes.hidden_begin;
  received_begin_ = sizes.received_begin;
  capacity_ = sizes.capacity;
  backend.clear(buffer_.data() + received_begin_, sizes.total - received_begin_);
}

KvSlab KvCache::slab(std::int32_t layer) const {
  if (!layout_.stores_kv(layer)) return {};
  const auto index = static_cast<std::size_t>(layer);
  std::byte* keys = buffer_.data() + slab_begin_[index];
  return {.keys = keys,
          .values = keys + (slab_begin_[index + 1] - slab_begin_[index]) / 2,
          .capacity = capacity_,
          .raw_keys = layout_.raw_keys ? buffer_.data() + raw_begin_[index] : nullptr};
}

TensorView KvCache::hidden() const {
  if (layout_.hidden_width == 0) return {};
  return {buffer_.data() + hidden_begin_, layout_.dtype(), capacity_, layout_.hidden_width, layout_.hidden_width};
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

std::shared_ptr<const Buffer> SequenceStates::at(std::int32_t position) const {
  const auto found = std::ranges::find(states_, position, &State::position);
  return found == states_.end() ? nullptr : found->memory;
}

std::int32_t SequenceStates::last_up_to(std::int32_t position) const {
  if (!kept()) return position;
  const auto behind = std::ranges::upper_bound(states_, position, {}, &State::position);
  return behind == states_.begin() ? 0 : std::prev(behind)->position;
}

std::vector<std::int32_t> SequenceStates::lasting(std::int32_t end) const {
  std::vector<std::int32_t> found;
  for (const State& state : states_)
    if (state.position == end || (state.position < end && std::ranges::binary_search(wanted_, state.position)))
      found.push_back(state.position);
  return found;
}

void SequenceStates::put(std::int32_t position, std::shared_ptr<const Buffer> state) {
  if (position == 0) return;
  const auto at = std::ranges::lower_bound(states_, position, {}, &State::position);
  // Nobody writes to a state that is shared.
  const State put{position, std::const_pointer_cast<Buffer>(std::move(state))};
  if (at != states_.end() && at->position == position) {
    *at = put;
  } else {
    states_.insert(at, put);
  }
}

std::byte* SequenceStates::make(std::int32_t position) {
  std::shared_ptr<Buffer> memory;
  if (spare_.empty()) {
    memory = std::make_shared<Buffer>(backend_->allocate_uninitialized(bytes_));
  } else {
    memory = std::move(spare_.back());
    spare_.pop_back();
  }
  put(position, memory);
  return memory->data();
}

void SequenceStates::want(std::int32_t position) {
  if (!kept() || position <= 0) return;
  const auto at = std::ranges::lower_bound(wanted_, position);
  if (at == wanted_.end() || *at != position) wanted_.insert(at, position);
}

std::vector<std::int32_t> SequenceStates::wanted(std::int32_t begin, std::int32_t end) const {
  return {std::ranges::upper_bound(wanted_, begin), std::ranges::lower_bound(wanted_, end)};
}

void SequenceStates::keep_between(std::int32_t begin, std::int32_t end) {
  constexpr std::size_t kSpare = 2;
  for (State& state : states_) {
    const bool early = state.position < begin && !std::ranges::binary_search(wanted_, state.position);
    if (!early && state.position <= end) continue;
    if (state.memory.use_count() == 1 && spare_.size() < kSpare) spare_.push_back(std::move(state.memory));
    state.memory.reset();
  }
  std::erase_if(states_, [](const State& state) { return state.memory == nullptr; });
}

}  // namespace baton
