// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <span>
#include <stdexcept>

namespace baton {

Segment::Segment(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n, TokenText ids)
    : device_(&backend), layout_(cache.layout()), tokens_(std::move(ids)), length_(n) {
  if (!layout_.raw_keys) throw std::invalid_argument("segment: expected a cache that keeps keys before RoPE");
  if (n < 1 || begin < 0 || begin + n > cache.length() || n > static_cast<std::int32_t>(tokens_.size())) {
    throw std::invalid_argument(
        fmt::format("segment: positions [{}, {}) are invalid: the cache holds {}, the text has {} tokens", begin,
                    begin + n, cache.length(), tokens_.size()));
  }
  position = begin;
  set_sizes();
  const auto count = static_cast<std::size_t>(n);
  memory_ = std::make_shared<const Buffer>(backend.allocate_uninitialized(memory_bytes_));
  const auto mutable_view = [](ConstTensorView view) {
    return TensorView{const_cast<std::byte*>(view.data), view.dtype, view.rows, view.cols, view.stride};
  };
  for (std::int32_t layer = 0; layer < layout_.layers(); ++layer) {
    if (!layout_.stores_kv(layer)) continue;
    backend.kv().save_kv(mutable_view(raw_keys(layer)), mutable_view(values(layer)), cache.slab(layer),
                         layout_.shape(layer), begin);
  }
  if (layout_.hidden_width > 0) {
    std::vector<std::int32_t> index(count);
    for (std::size_t i = 0; i < count; ++i) index[i] = begin + static_cast<std::int32_t>(i);
    backend.gather_rows(mutable_view(this->hidden()), cache.hidden(), index);
  }
  if (layout_.received) {
    std::vector<AttentionSum> sums(count, 0), of_head(count);
    for (std::int32_t head = 0; head < layout_.max_kv_heads(); ++head) {
      backend.copy_to_host(
          std::as_writable_bytes(std::span(of_head)),
          reinterpret_cast<const std::byte*>(cache.received() + std::int64_t{head} * cache.capacity() + begin));
      for (std::size_t i = 0; i < count; ++i) sums[i] += of_head[i];
    }
    for (const AttentionSum sum : sums)
      received_.push_back(static_cast<float>(static_cast<double>(sum) * kAttentionUnit));
  }
}

Segment::Segment(Backend& backend, const KvLayout& layout, TokenText ids, std::span<const std::byte> bytes)
    : device_(&backend), layout_(layout), tokens_(std::move(ids)), length_(static_cast<std::int32_t>(tokens_.size())) {
  if (!layout_.raw_keys || layout_.received || length_ < 1)
    throw std::invalid_argument("segment: expected tokens, and a layout with keys before RoPE, without attention");
  set_sizes();
  if (bytes.size() != memory_bytes_) {
    throw std::invalid_argument(
        fmt::format("segment: {} tokens have {} bytes of KV; found {}", length_, memory_bytes_, bytes.size()));
  }
  Buffer memory = backend.allocate_uninitialized(memory_bytes_);
  backend.copy_to_device(memory.data(), bytes);
  memory_ = std::make_shared<const Buffer>(std::move(memory));
}

Segment::Segment(Device& device, std::shared_ptr<const Buffer> state)
    : device_(&device), memory_bytes_(state->bytes()), memory_(std::move(state)) {}

std::shared_ptr<const Buffer> Segment::state() const {
  if (upload_) upload_->follow_all();
  return memory_;
}

void Segment::set_sizes() {
  const auto count = static_cast<std::size_t>(length_);
  layer_begin_.assign(1, 0);
  for (std::int32_t layer = 0; layer < layout_.layers(); ++layer)
    layer_begin_.push_back(layer_begin_.back() + 2 * count * layout_.row_bytes(layer));
  memory_bytes_ =
      layer_begin_.back() + count * static_cast<std::size_t>(layout_.hidden_width) * size_of(layout_.dtype());
}

std::shared_ptr<const Segment> Segment::copy_to_host() const {
  const std::shared_ptr<Segment> copy(new Segment(*this));
  if (upload_) upload_->follow_all();
  auto memory = std::make_shared<const Buffer>(device_->allocate_host(memory_bytes_));
  device_->download(*memory, *memory_, 0, memory_bytes_);
  copy->memory_ = std::move(memory);
  copy->upload_ = nullptr;
  copy->on_host_ = true;
  return copy;
}

std::shared_ptr<const Segment> Segment::copy_to_device() const {
  return uploaded_to(*device_, PiecewiseUpload::Source::own);
}

std::shared_ptr<const Segment> Segment::uploaded_to(Device& device, PiecewiseUpload::Source source) const {
  const std::shared_ptr<Segment> copy(new Segment(*this));
  copy->memory_ = std::make_shared<const Buffer>(device.allocate_uninitialized(memory_bytes_));
  const auto layers = static_cast<std::size_t>(layout_.layers());
  const auto together = static_cast<std::size_t>(upload_group(layout_.layers()));
  std::vector<PiecewiseUpload::Piece> pieces;
  for (std::size_t first = 0; first < layers; first += together) {
    const std::size_t begin = layer_begin_[first], end = layer_begin_[std::min(first + together, layers)];
    pieces.emplace_back();
    if (begin < end) pieces.back().push_back({begin, end - begin});
  }
  if (layers == 0) pieces.push_back({{0, memory_bytes_}});  // a state
  if (layout_.hidden_width > 0)
    pieces[group_of_hidden()].push_back({layer_begin_.back(), memory_bytes_ - layer_begin_.back()});
  copy->upload_ = std::make_shared<PiecewiseUpload>(device, memory_, copy->memory_, std::move(pieces), source);
  copy->device_ = &device;
  copy->on_host_ = false;
  return copy;
}

std::shared_ptr<const Segment> Segment::copy_to(Device& other) const {
  if (on_host()) return uploaded_to(other, PiecewiseUpload::Source::of_another_device);
  const std::shared_ptr<Segment> copy(new Segment(*this));
  copy->memory_ = std::make_shared<const Buffer>(other.allocate_uninitialized(memory_bytes_));
  other.copy_to_device(copy->memory_->data(), {memory_->data(), memory_bytes_});
  copy->device_ = &other;
  return copy;
}

std::size_t Segment::group_of(std::int32_t layer) const {
  return static_cast<std::size_t>(std::min(layer, layout_.layers() - 1) / upload_group(layout_.layers()));
}

/// The hidden states come with KV that a reader needs before them, so that every group is followed by whoever reads all
/// layers.
std::size_t Segment::group_of_hidden() const {
  std::int32_t layer = layout_.hidden_layer;
  while (layer > 0 && !layout_.stores_kv(layer)) --layer;
  return group_of(layer);
}

void Segment::upload(std::int32_t layer) const {
  if (is_uploading()) upload_->upload(group_of(layer));
}

/// Returns the address of byte `begin`, which belongs to the given group, after making later operations wait for it.
const std::byte* Segment::memory_at(std::size_t begin, std::size_t group) const {
  if (upload_) upload_->follow(group);
  return memory_->data() + begin;
}

ConstTensorView Segment::raw_keys(std::int32_t layer) const {
  const std::int64_t width = layout_.shape(layer).width();
  const std::byte* data = memory_at(layer_begin_[static_cast<std::size_t>(layer)], group_of(layer));
  return BasicView<const std::byte>{data, layout_.dtype(), length_, width, width};
}

ConstTensorView Segment::values(std::int32_t layer) const {
  ConstTensorView view = raw_keys(layer);
  view.data += static_cast<std::size_t>(length_) * layout_.row_bytes(layer);
  return view;
}

void Segment::copy_first_rows(std::int32_t layer, std::span<std::byte> keys, std::span<std::byte> values) const {
  fetch(keys, raw_keys(layer).data);
  fetch(values, this->values(layer).data);
}

void Segment::fetch(std::span<std::byte> out, const std::byte* from) const {
  if (!on_host()) return device_->copy_to_host(out, from);
  device_->wait();
  std::copy_n(from, out.size(), out.begin());
}

ConstTensorView Segment::hidden() const {
  if (layout_.hidden_width == 0) return {};
  const std::byte* data = memory_at(layer_begin_.back(), group_of_hidden());
  return BasicView<const std::byte>{data, layout_.dtype(), length_, layout_.hidden_width, layout_.hidden_width};
}

std::vector<float> values_on_host(const Segment& segment, std::int32_t layer) {
  const KvLayout& layout = segment.layout();
  const std::size_t bytes = layout.row_bytes(layer) * static_cast<std::size_t>(segment.length());
  std::vector<std::byte> keys(bytes), stored(bytes);
  segment.copy_first_rows(layer, keys, stored);
  std::vector<float> values(bytes / size_of(layout.dtype()));
  dequantize(values, stored, layout.dtype() == DType::f32 ? BlockType::f32 : BlockType::bf16);
  return values;
}

std::vector<std::byte> state_on_host(Device& device, const Segment& segment) {
  const std::shared_ptr<const Buffer> state = segment.state();
  std::vector<std::byte> bytes(state->bytes());
  if (!segment.on_host()) {
    device.copy_to_host(bytes, state->data());
  } else {
    device.wait();
    std::copy_n(state->data(), bytes.size(), bytes.begin());
  }
  return bytes;
}

PiecewiseUpload::PiecewiseUpload(Device& device, std::shared_ptr<const Buffer> from, std::shared_ptr<const Buffer> to,
                                 std::vector<Piece> pieces, Source source)
    : device_(device),
      from_(std::move(from)),
      to_(std::move(to)),
      pieces_(std::move(pieces)),
      state_(pieces_.size(), State::waiting),
      transfers_(pieces_.size()),
      unfollowed_(pieces_.size()),
      source_(source) {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
    if (!pieces_[piece].empty()) continue;
    state_[piece] = State::followed;
    --unfollowed_;
  }
}

PiecewiseUpload::~PiecewiseUpload() {
  if (source_ == Source::own) return;
  const TransferId last = *std::max_element(transfers_.begin(), transfers_.end());
  try {
    device_.wait_for(last);
  } catch (const std::exception&) {  // NOLINT: the device copies no more
  }
}

void PiecewiseUpload::upload(std::size_t piece) {
  if (state_.at(piece) != State::waiting) return;
  for (const Range& range : pieces_[piece]) transfers_[piece] = device_.upload(*to_, *from_, range.begin, range.bytes);
  state_[piece] = State::queued;
}

void PiecewiseUpload::follow(std::size_t piece) {
  if (state_.at(piece) == State::followed) return;
  upload(piece);
  device_.follow(transfers_[piece]);
  state_[piece] = State::followed;
  if (--unfollowed_ == 0 && source_ == Source::own) from_ = to_ = nullptr;
}

void PiecewiseUpload::follow_all() {
  for (std::size_t piece = 0; piece < pieces_.size(); ++piece) follow(piece);
}

namespace {

/// out [n, 2 K D] = the keys and the values [n, K D] of one layer, row by row.
void gather(Device& device, std::span<std::uint16_t> out, ConstTensorView raw_k, ConstTensorView v) {
  const auto width = static_cast<std::size_t>(raw_k.cols);
  std::size_t column = 0;
  for (const ConstTensorView& view : {raw_k, v}) {
    const std::size_t count = static_cast<std::size_t>(view.rows) * width;
    std::vector<std::uint16_t> bits(count);
    if (view.dtype == DType::f32) {
      std::vector<float> values(count);
      device.copy_to_host(std::as_writable_bytes(std::span(values)), view.data);
      std::transform(values.begin(), values.end(), bits.begin(), f32_to_bf16);
    } else {
      device.copy_to_host(std::as_writable_bytes(std::span(bits)), view.data);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(view.rows); ++i)
      std::copy_n(bits.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                  out.begin() + static_cast<std::ptrdiff_t>(i * 2 * width + column));
    column += width;
  }
}

}  // namespace

std::vector<std::uint16_t> kv_on_host(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n) {
  const KvLayout& layout = cache.layout();
  const auto count = static_cast<std::size_t>(n);
  std::size_t largest = 0;
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) largest = std::max(largest, layout.row_bytes(layer));
  const Buffer memory = backend.allocate(2 * count * largest);
  std::vector<std::uint16_t> kv(count * layout.token_bytes() / size_of(layout.dtype()));
  std::span<std::uint16_t> rest = kv;
  for (std::int32_t layer = 0; layer < layout.layers() && n > 0; ++layer) {
    if (!layout.stores_kv(layer)) continue;
    const TensorView both = memory.view(layout.dtype(), 2 * std::int64_t{n}, layout.shape(layer).width());
    const TensorView raw_k = both.row_range(0, n), v = both.row_range(n, 2 * std::int64_t{n});
    backend.kv().save_kv(raw_k, v, cache.slab(layer), layout.shape(layer), begin);
    const auto values = static_cast<std::size_t>(both.rows * both.cols);
    gather(backend, rest.first(values), raw_k, v);
    rest = rest.subspan(values);
  }
  return kv;
}

std::vector<std::uint16_t> kv_on_host(Device& device, const Segment& segment) {
  const KvLayout& layout = segment.layout();
  const auto count = static_cast<std::size_t>(segment.length());
  std::vector<std::uint16_t> kv(count * layout.token_bytes() / size_of(layout.dtype()));
  std::span<std::uint16_t> rest = kv;
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    if (!layout.stores_kv(layer)) continue;
    const std::size_t values = 2 * count * static_cast<std::size_t>(layout.shape(layer).width());
    gather(device, rest.first(values), segment.raw_keys(layer), segment.values(layer));
    rest = rest.subspan(values);
  }
  return kv;
}

}  // namespace baton
