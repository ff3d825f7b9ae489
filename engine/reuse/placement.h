// SPDX-License-Identifier: Apache-2.0
// Placement of reused KV in a live cache: gather, rotate to the new position, write.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

#include "engine/kv/segment.h"
#include "engine/model/rope.h"

namespace baton {

/// Layers [begin, end); `end` may exceed the number of layers.
struct LayerSpan {
  std::int32_t begin = 0;
  std::int32_t end = std::numeric_limits<std::int32_t>::max();
};

/// Tokens [first, first + n) of a segment, which go to positions [position, position + n) of a cache, in `layers`.
struct Placement {
  std::int32_t position = 0;
  const Segment* segment = nullptr;
  std::int32_t first = 0;
  std::int32_t n = 0;
  LayerSpan layers{};
};

/// Copies the tokens into the cache, and their hidden states where segment and cache keep those of the same layer and
/// `layers` contains it. A token that keeps its position keeps its bits. Throws std::invalid_argument when the shapes
/// differ.
void insert(Backend& backend, RopeTable& angles, KvCache& cache, const Placement& tokens);

/// A correction that is added to keys and values while they are copied (KvOperations::insert_kv), in backend memory.
struct CorrectionSource {
  std::function<ConstTensorView(std::int32_t layer)> offset;  // [m, 2 K D] bf16
  std::span<const std::int32_t> row;                          // [n]
  float weight = 0.0f;
  std::int32_t from_layer = 0;  // layers before this one are not corrected
};

/// Copies the tokens as insert() does and adds the corrections; keys are rotated for positions [rotated, rotated + n).
/// With a null segment, the KV consists of the corrections alone. Throws std::invalid_argument when the shapes differ.
void place_corrected(Backend& backend, RopeTable& angles, KvCache& cache, const Placement& tokens, std::int32_t rotated,
                     std::span<const CorrectionSource> corrections);

}  // namespace baton
