// SPDX-License-Identifier: Apache-2.0
// KV in host memory, before RoPE, as anchors and corrections look at it. The engine's thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kv/segment.h"

namespace baton {

/// [L, n, 2 K D] bf16 (f32 is rounded): keys before RoPE, then values, of positions [begin, begin + n) of a cache that
/// keeps raw keys. Throws BackendError.
std::vector<std::uint16_t> kv_on_host(Backend& backend, const KvCache& cache, std::int32_t begin, std::int32_t n);
/// The same of a segment's tokens that have KV.
std::vector<std::uint16_t> kv_on_host(Device& device, const Segment& segment);

}  // namespace baton
