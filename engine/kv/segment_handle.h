// SPDX-License-Identifier: Apache-2.0
// SegmentHandle: a caller's reference to a segment of an engine. It does not tell where the segment's memory is; only
// the engine's store (engine/kv/segment_store.h) does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace baton {

class Segment;

/// The entry of one segment in a store. Threads: any. Dropping the last handle frees the segment.
class StoredSegment {
 public:
  std::int32_t tokens = 0;  // number of tokens with KV
  int hops = 0;             // 0: computed exactly; n: from a context that held segments of n - 1 hops
  std::string origin;       // "inspector#2", for reports

 private:
  friend class SegmentStore;
  friend class SegmentTiers;
  std::weak_ptr<StoredSegment> self_;        // of the handle that the store gave out first
  std::shared_ptr<const Segment> segment_;   // guarded by the store's mutex; null: evicted
  std::shared_ptr<const Segment> exported_;  // guarded by the store's mutex; null: not exported
  bool in_host_ = false;                     // counts in the host tier: it is there, or is being downloaded
  std::int64_t readers_ = 0;                 // planned readers that have not read the segment yet
  std::int64_t holds_ = 0;                   // SegmentStore::hold
  std::uint64_t last_use_ = 0;
};

using SegmentHandle = std::shared_ptr<StoredSegment>;

struct SegmentStoreStats {
  std::int64_t bytes = 0;  // in the backend's memory, as are peak_bytes and segments
  std::int64_t peak_bytes = 0;
  std::int64_t segments = 0;
  std::int64_t charged_bytes = 0;  // of other data that shares the budget
  std::int64_t host_bytes = 0;     // in the host tier
  std::int64_t host_peak_bytes = 0;
  std::int64_t host_segments = 0;
  std::int64_t exported_bytes = 0;  // copies for readers of other engines, in the host tier's budget
  std::int64_t downloaded = 0;      // segments moved to the host tier
  std::int64_t uploaded = 0;        // segments moved from the host tier to the device
  std::int64_t evicted = 0;         // segments freed while handles to them existed; their readers recompute them
};

/// What an engine's KvStore (engine/kv/kv_store.h) has done.
struct KvStoreStats {
  std::int64_t read_tokens = 0, read_bytes = 0;
  std::int64_t written_bytes = 0;
  std::int64_t dropped = 0;  // prompts and texts that were not written: too many waited, or writing failed
  std::int64_t damaged = 0;  // files that were removed because they were not what their name says
  std::string error;         // why the last file could not be written
};

// KeptContext: the KV of a prompt and its answer, kept for the prompts that begin with the same tokens: the next answer
// to called tools, the next turn of a session. Unlike a cached prefix it may hold approximate KV.

/// The state that recurrent layers left behind the first `position` tokens, as a segment without tokens.
struct KeptState {
  std::int32_t position = 0;
  SegmentHandle segment;
};

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
  std::vector<KeptState> states;     // of recurrent layers, ascending positions, the last one n; empty: there are none
  std::int32_t exact = 0;            // positions [0, exact) hold exact KV
  int hops = 0;                      // of the positions behind them; 0: there are none
  bool imported_kv = false;          // some of the KV was read from a file: only requests that continue it may use it
  const void* engine = nullptr;      // that made it; others cannot read it
};

using ContextHandle = std::shared_ptr<const KeptContext>;

}  // namespace baton
