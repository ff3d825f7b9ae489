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

void place(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t position, const Segment& segment,
           std::int32_t first, std::int32_t n) {
  const KvLayout& to = cache.layout();
  check(cache, position, &segment, first, n);
  if (n == 0) return;
  const RopeAngles turned = angles.range(position, n);
  const auto count = static_cast<std::size_t>(n);
  std::vector<std::int32_t> sequence(count, 0), positions(count), begins(count, 0);
  for (std::size_t i = 0; i < count; ++i) positions[i] = position + static_cast<std::int32_t>(i);
  for (std::int32_t layer = 0; layer < to.layers; ++layer) {
    const KvSlab slab = cache.slab(layer);
    backend.store_kv({&slab, 1}, to.shape, {sequence, positions, begins},
                     segment.raw_keys(layer).row_range(first, first + n),
                     segment.values(layer).row_range(first, first + n), turned);
  }
  place_hidden(backend, cache, position, segment, first, n);
}

void place_corrected(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t position, std::int32_t rotated,
                     const Segment* segment, std::int32_t first, std::int32_t n,
                     std::span<const CorrectionSource> corrections) {
  check(cache, position, segment, first, n);
  if (n == 0) return;
  const RopeAngles turned = angles.range(rotated, n);
  const KvLayout& to = cache.layout();
  for (std::int32_t layer = 0; layer < to.layers; ++layer) {
    std::vector<KvCorrection> applied;
    for (const CorrectionSource& source : corrections) {
      if (layer >= source.from_layer) applied.push_back({source.offset(layer), source.row, source.weight});
    }
    ConstTensorView k, v;
    if (segment != nullptr) {
      k = segment->raw_keys(layer).row_range(first, first + n);
      v = segment->values(layer).row_range(first, first + n);
    }
    backend.store_corrected_kv(cache.slab(layer), to.shape, position, k, v, applied, turned);
  }
  if (segment != nullptr) place_hidden(backend, cache, position, *segment, first, n);
}

}  // namespace baton
