// SPDX-License-Identifier: Apache-2.0
// Copies of KV in host memory, with keys before RoPE, for anchors and corrections. Threads: the engine's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/segment.h"

namespace baton {

/// Returns [L, n, 2 K D] bf16 (f32 is rounded): the keys before RoPE, then the values, of positions [begin, begin + n)
/// of a cache that keeps raw keys. Blocks until they are copied. Throws BackendError.
std::vector<std::uint16_t> kv_on_host(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n);
/// Returns the same for the n tokens of a segment that have KV.
std::vector<std::uint16_t> kv_on_host(Device& device, const Segment& segment);

}  // namespace baton
