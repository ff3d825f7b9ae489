#include "engine/reuse/placement.h"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

namespace baton {
namespace {

bool same_shape(const KvLayout& a, const KvLayout& b) {
  return a.layers == b.layers && a.shape.kv_heads == b.shape.kv_heads && a.shape.head_dim == b.shape.head_dim &&
         a.shape.dtype == b.shape.dtype;
}

}  // namespace

void place(Backend& backend, const Rope& rope, KvCache& cache, std::int32_t position, const Segment& segment,
           std::int32_t first, std::int32_t n) {
  const KvLayout& from = segment.layout();
  const KvLayout& to = cache.layout();
  if (!same_shape(from, to)) throw std::invalid_argument("place: the segment is of another model's shape");
  if (first < 0 || n < 0 || first + n > segment.length() || position < 0 || position + n > cache.capacity()) {
    throw std::invalid_argument(fmt::format("place: tokens [{}, {}) of {} at position {} of {}", first, first + n,
                                            segment.length(), position, cache.capacity()));
  }
  if (n == 0) return;
  const auto count = static_cast<std::size_t>(n);
  std::vector<std::int32_t> sequence(count, 0), positions(count), begins(count, 0);
  for (std::size_t i = 0; i < count; ++i) positions[i] = position + static_cast<std::int32_t>(i);
  const std::size_t half = rope.inverse_frequencies().size();
  std::vector<float> angles(2 * count * half);
  const std::span<float> cos(angles.data(), count * half), sin(angles.data() + count * half, count * half);
  rope.angles(cos, sin, positions);
  const Buffer device = backend.allocate(angles.size() * sizeof(float));
  backend.copy_to_device(device.data(), std::as_bytes(std::span(angles)));
  const TensorView both = device.view(DType::f32, 2 * n, static_cast<std::int64_t>(half));
  const RopeAngles rotation{both.row_range(0, n), both.row_range(n, 2 * n)};
  for (std::int32_t layer = 0; layer < to.layers; ++layer) {
    const KvSlab slab = cache.slab(layer);
    backend.store_kv({&slab, 1}, to.shape, {sequence, positions, begins},
                     segment.raw_keys(layer).row_range(first, first + n),
                     segment.values(layer).row_range(first, first + n), rotation);
  }
  if (to.hidden_width > 0 && to.hidden_width == from.hidden_width && to.hidden_layer == from.hidden_layer) {
    backend.scatter_rows(cache.hidden(), segment.hidden().row_range(first, first + n), positions);
  }
}

}  // namespace baton
