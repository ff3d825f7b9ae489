// SPDX-License-Identifier: Apache-2.0
// TransferId KV that exists into a live cache: gather, rotate at the new position, write.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "engine/kv/segment.h"
#include "engine/model/rope_table.h"

namespace baton {

/// Layers [begin, end), as far as there are any.
struct LayerSpan {
  std::int32_t begin = 0;
  std::int32_t end = std::numeric_limits<std::int32_t>::max();
};

/// Copies tokens [first, first + n) of a segment to positions [position, position + n) of the cache, in these layers,
/// and their hidden states where both keep those of the same layer, one of these. Bits do not change when a token keeps
/// its position. Throws std::invalid_argument when the shapes differ.
void place(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t position, const Segment& segment,
           std::int32_t first, std::int32_t n, LayerSpan layers = {});

/// What is added to keys and values on their way (Operations::place_kv), in the backend's memory.
struct CorrectionSource {
  std::function<ConstTensorView(std::int32_t layer)> offset;  // [m, 2 K D] bf16
  std::span<const std::int32_t> row;                          // [n]
  float weight = 0.0f;
  std::int32_t from_layer = 0;  // layers before it are left as they are
};

/// The same with corrections, for `n` tokens; keys are rotated as at positions [rotated, rotated + n). Without a
/// segment the corrections are all there is. Throws std::invalid_argument.
void place_corrected(Backend& backend, RopeTable& angles, KvCache& cache, std::int32_t position, std::int32_t rotated,
                     const Segment* segment, std::int32_t first, std::int32_t n,
                     std::span<const CorrectionSource> corrections, LayerSpan layers = {});

}  // namespace baton
