// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/kv_on_host.h"

#include <algorithm>
#include <span>

namespace baton {
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

std::size_t width_of(const KvShape& shape) {
  return static_cast<std::size_t>(shape.kv_heads) * static_cast<std::size_t>(shape.head_dim);
}

}  // namespace

std::vector<std::uint16_t> kv_on_host(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n) {
  const KvLayout& layout = cache.layout();
  const std::size_t matrix = static_cast<std::size_t>(n) * width_of(layout.shape);
  const auto width = static_cast<std::int64_t>(width_of(layout.shape));
  const Buffer memory = backend.allocate(2 * matrix * size_of(layout.shape.dtype));
  const TensorView raw_k = memory.view(layout.shape.dtype, n, width);
  TensorView v = raw_k;
  v.data += matrix * size_of(layout.shape.dtype);
  std::vector<std::uint16_t> kv(2 * matrix * static_cast<std::size_t>(layout.layers));
  for (std::int32_t layer = 0; layer < layout.layers && n > 0; ++layer) {
    backend.save_kv(raw_k, v, cache.slab(layer), layout.shape, begin);
    gather(backend, std::span(kv).subspan(2 * matrix * static_cast<std::size_t>(layer), 2 * matrix), raw_k, v);
  }
  return kv;
}

std::vector<std::uint16_t> kv_on_host(Device& device, const Segment& segment) {
  const std::size_t rows = static_cast<std::size_t>(segment.length()) * 2 * width_of(segment.layout().shape);
  const std::int32_t layers = segment.layout().layers;
  std::vector<std::uint16_t> kv(rows * static_cast<std::size_t>(layers));
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    gather(device, std::span(kv).subspan(rows * static_cast<std::size_t>(layer), rows), segment.raw_keys(layer),
           segment.values(layer));
  }
  return kv;
}

}  // namespace baton
