// SPDX-License-Identifier: Apache-2.0
// KeptContext: the KV of a prompt and its answer, kept for the prompts that begin with the same tokens: the next answer
// to called tools, the next turn of a session. Unlike a cached prefix it may hold approximate KV.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/segment_handle.h"

namespace baton {

/// Immutable, and shared by all that continue it. Threads: any. Dropping the last reference frees what no other context
/// and no cached prefix holds. The KV counts towards the engine's budget; what is evicted is computed again.
struct KeptContext {
  /// Tokens [0, count) of the segment are at positions [begin, begin + count).
  struct Piece {
    SegmentHandle segment;
    std::int32_t begin = 0;
    std::int32_t count = 0;
  };
  std::vector<std::int32_t> tokens;  // [n], all with KV
  std::vector<Piece> pieces;         // contiguous, from position 0 to n
  std::int32_t exact = 0;            // positions [0, exact) hold exact KV
  int hops = 0;                      // of the positions behind them; 0: there are none
  bool imported_kv = false;          // some of the KV was read from a file: only requests that continue it may use it
  const void* engine = nullptr;      // that made it; others cannot read it
};

using ContextHandle = std::shared_ptr<const KeptContext>;

}  // namespace baton
