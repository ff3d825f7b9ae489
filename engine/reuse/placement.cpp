// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace baton {
namespace {

void check(const KvCache& cache, const Placement& tokens) {
  const auto [position, segment, first, n, layers] = tokens;
  if (segment != nullptr && segment->layout().shapes != cache.layout().shapes)
    throw std::invalid_argument("place: the segment's shape differs from the cache's");
  const std::int32_t length = segment != nullptr ? segment->length() : n;
  if (first < 0 || n < 0 || first + n > length || position < 0 || position + n > cache.capacity()) {
    throw std::invalid_argument(fmt::format("place: tokens [{}, {}) of {} at position {} of {}", first, first + n,
                                            length, position, cache.capacity()));
  }
}

/// Copies hidden states where segment and cache keep those of the same layer.
void place_hidden(Backend& backend, KvCache& cache, const Placement& tokens) {
  const auto [position, segment, first, n, layers] = tokens;
  const KvLayout& from = segment->layout();
  const KvLayout& to = cache.layout();
  if (to.hidden_width == 0 || to.hidden_width != from.hidden_width || to.hidden_layer != from.hidden_layer) return;
  std::vector<std::int32_t> positions(static_cast<std::size_t>(n));
  std::iota(positions.begin(), positions.end(), position);
  backend.scatter_rows(cache.hidden(), segment->hidden().row_range(first, first + n), positions);
}

/// Layers that one operation fills.
struct LayersOfAKind {
  std::size_t rope = 0;  // index into RopeTable::ropes().distinct()
  KvShape shape;
  bool operator==(const LayersOfAKind&) const = default;
};

/// Places KV in those of the layers that are of the kind.
void place_layers(Backend& backend, RopeTable& angles, const LayersOfAKind& kind, KvCache& cache,
                  const Placement& tokens, std::int32_t rotated, std::span<const CorrectionSource> corrections) {
  const auto [position, segment, first, n, layers] = tokens;
  std::vector<KvSlab> slabs;
  std::vector<ConstTensorView> k, v;
  std::vector<std::vector<ConstTensorView>> offsets(corrections.size());
  for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
    if (kind != LayersOfAKind{angles.ropes().of(layer), cache.layout().shape(layer)}) continue;
    slabs.push_back(cache.slab(layer));
    if (segment != nullptr) {
      k.push_back(segment->raw_keys(layer).row_range(first, first + n));
      v.push_back(segment->values(layer).row_range(first, first + n));
    }
    for (std::size_t i = 0; i < corrections.size(); ++i)
      offsets[i].push_back(layer >= corrections[i].from_layer ? corrections[i].offset(layer) : ConstTensorView{});
  }
  std::vector<KvCorrection> applied;
  for (std::size_t i = 0; i < corrections.size(); ++i)
    applied.push_back({offsets[i], corrections[i].row, corrections[i].weight});
  backend.kv().insert_kv(slabs, kind.shape, position, k, v, applied, angles.range(kind.rope, rotated, n));
}

}  // namespace

void insert(Backend& backend, RopeTable& angles, KvCache& cache, const Placement& tokens) {
  place_corrected(backend, angles, cache, tokens, tokens.position, {});
}

void place_corrected(Backend& backend, RopeTable& angles, KvCache& cache, const Placement& tokens, std::int32_t rotated,
                     std::span<const CorrectionSource> corrections) {
  check(cache, tokens);
  Placement in_cache = tokens;
  LayerSpan& layers = in_cache.layers;
  layers.end = std::min(layers.end, cache.layout().layers());
  if (tokens.n == 0 || layers.begin >= layers.end) return;
  std::vector<LayersOfAKind> placed;
  for (std::int32_t layer = layers.begin; layer < layers.end; ++layer) {
    const LayersOfAKind kind{angles.ropes().of(layer), cache.layout().shape(layer)};
    if (!cache.layout().stores_kv(layer) || std::ranges::find(placed, kind) != placed.end()) continue;
    place_layers(backend, angles, kind, cache, in_cache, rotated, corrections);
    placed.push_back(kind);
  }
  const bool with_hidden = layers.begin <= cache.layout().hidden_layer && cache.layout().hidden_layer < layers.end;
  if (tokens.segment != nullptr && with_hidden) place_hidden(backend, cache, tokens);
}

}  // namespace baton
