#include "engine/reuse/placement.h"

#include <fmt/format.h>

#include <numeric>
#include <stdexcept>
#include <vector>

namespace baton {
namespace {

bool same_shape(const KvLayout& a, const KvLayout& b) {
  return a.layers == b.layers && a.shape.kv_heads == b.shape.kv_heads && a.shape.head_dim == b.shape.head_dim &&
         a.shape.dtype == b.shape.dtype;
}

/// The angles of positions [position, position + n), on the device.
class Rotation {
 public:
  Rotation(Backend& backend, const Rope& rope, std::int32_t position, std::int32_t n) : n_(n) {
    const auto count = static_cast<std::size_t>(n);
    std::vector<std::int32_t> positions(count);
    for (std::size_t i = 0; i < count; ++i) positions[i] = position + static_cast<std::int32_t>(i);
    half_ = rope.inverse_frequencies().size();
    std::vector<float> angles(2 * count * half_);
    const std::span<float> cos(angles.data(), count * half_), sin(angles.data() + count * half_, count * half_);
    rope.angles(cos, sin, positions);
    memory_ = backend.allocate(angles.size() * sizeof(float));
    backend.copy_to_device(memory_.data(), std::as_bytes(std::span(angles)));
  }
  RopeAngles angles() const {
    const TensorView both = memory_.view(DType::f32, 2 * n_, static_cast<std::int64_t>(half_));
    return {both.row_range(0, n_), both.row_range(n_, 2 * n_)};
  }

 private:
  std::int64_t n_;
  std::size_t half_ = 0;
  Buffer memory_;
};

void check(const KvCache& cache, std::int32_t position, const Segment* segment, std::int32_t first, std::int32_t n) {
  if (segment != nullptr && !same_shape(segment->layout(), cache.layout()))
    throw std::invalid_argument("place: the segment is of another model's shape");
  const std::int32_t length = segment != nullptr ? segment->length() : n;
  if (first < 0 || n < 0 || first + n > length || position < 0 || position + n > cache.capacity()) {
    throw std::invalid_argument(fmt::format("place: tokens [{}, {}) of {} at position {} of {}", first, first + n,
                                            length, position, cache.capacity()));
  }
}

/// Hidden states, where both keep those of the same layer.
void place_hidden(Backend& backend, KvCache& cache, std::int32_t position, const Segment& segment, std::int32_t first,
                  std::int32_t n) {
  const KvLayout& from = segment.layout();
  const KvLayout& to = cache.layout();
  if (to.hidden_width == 0 || to.hidden_width != from.hidden_width || to.hidden_layer != from.hidden_layer) return;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
  std::iota(positions.begin(), positions.end(), position);
  backend.scatter_rows(cache.hidden(), segment.hidden().row_range(first, first + n), positions);
}

}  // namespace

void place(Backend& backend, const Rope& rope, KvCache& cache, std::int32_t position, const Segment& segment,
           std::int32_t first, std::int32_t n) {
  const KvLayout& to = cache.layout();
  check(cache, position, &segment, first, n);
  if (n == 0) return;
  const Rotation rotation(backend, rope, position, n);
  const auto count = static_cast<std::size_t>(n);
  std::vector<std::int32_t> sequence(count, 0), positions(count), begins(count, 0);
  for (std::size_t i = 0; i < count; ++i) positions[i] = position + static_cast<std::int32_t>(i);
  for (std::int32_t layer = 0; layer < to.layers; ++layer) {
    const KvSlab slab = cache.slab(layer);
    backend.store_kv({&slab, 1}, to.shape, {sequence, positions, begins},
                     segment.raw_keys(layer).row_range(first, first + n),
                     segment.values(layer).row_range(first, first + n), rotation.angles());
  }
  place_hidden(backend, cache, position, segment, first, n);
}

void place_corrected(Backend& backend, const Rope& rope, KvCache& cache, std::int32_t position, std::int32_t rotated,
                     const Segment* segment, std::int32_t first, std::int32_t n,
                     std::span<const CorrectionSource> corrections) {
  check(cache, position, segment, first, n);
  if (n == 0) return;
  const Rotation rotation(backend, rope, rotated, n);
  const KvLayout& to = cache.layout();
  const std::int64_t width = std::int64_t{2} * to.shape.kv_heads * to.shape.head_dim;
  const bool host_memory = backend.info().host_memory;
  for (std::int32_t layer = 0; layer < to.layers; ++layer) {
    std::vector<KvCorrection> applied;
    std::vector<Buffer> uploaded;
    for (const CorrectionSource& source : corrections) {
      if (layer < source.from_layer) continue;
      const std::span<const std::byte> offset = std::as_bytes(source.offset(layer));
      const std::byte* data = offset.data();
      if (!host_memory) {
        uploaded.push_back(backend.allocate(offset.size()));
        backend.copy_to_device(uploaded.back().data(), offset);
        data = uploaded.back().data();
      }
      const auto rows = static_cast<std::int64_t>(offset.size() / sizeof(std::uint16_t)) / width;
      applied.push_back({BasicView<const std::byte>{data, DType::bf16, rows, width, width}, source.row, source.weight});
    }
    ConstTensorView k, v;
    if (segment != nullptr) {
      k = segment->raw_keys(layer).row_range(first, first + n);
      v = segment->values(layer).row_range(first, first + n);
    }
    backend.store_corrected_kv(cache.slab(layer), to.shape, position, k, v, applied, rotation.angles());
  }
  if (segment != nullptr) place_hidden(backend, cache, position, *segment, first, n);
}

}  // namespace baton
