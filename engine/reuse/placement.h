// Copying KV that exists into a live cache: gather, rotate at the new position, write.
#pragma once

#include "engine/kv/segment.h"
#include "engine/model/rope.h"

namespace baton {

/// Copies tokens [first, first + n) of a segment to positions [position, position + n) of the cache, in all layers, and
/// their hidden states where both keep those of the same layer. Bits do not change when a token keeps its position.
/// Throws std::invalid_argument when the shapes differ.
void place(Backend& backend, const Rope& rope, KvCache& cache, std::int32_t position, const Segment& segment,
           std::int32_t first, std::int32_t n);

}  // namespace baton
