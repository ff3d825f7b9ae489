// SPDX-License-Identifier: Apache-2.0
// SegmentHandle: what a caller of an engine holds for a segment. It says nothing of where the segment is; only the
// engine's store (engine/kv/segment_store.h) reads it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace baton {

class Segment;

/// The entry of one segment in a store. Safe from any thread; dropping the last handle frees the segment.
class StoredSegment {
 public:
  std::int32_t tokens = 0;  // with KV
  int hops = 0;             // 0: computed exactly; n: from a context that held segments of n - 1 hops
  std::string origin;       // "inspector#2", for reports

 private:
  friend class SegmentStore;
  friend class SegmentTiers;
  std::shared_ptr<const Segment> segment_;  // guarded by the store's mutex; null: evicted
  std::shared_ptr<const Segment> lent_;     // guarded by the store's mutex; null: not lent
  bool in_host_ = false;                    // counts in the host tier: it is there, or its copy is under way
  std::int64_t readers_ = 0;                // planned readers that have not read it yet
  std::uint64_t last_use_ = 0;
};

using SegmentHandle = std::shared_ptr<StoredSegment>;

struct SegmentStoreStats {
  std::int64_t bytes = 0;  // where the backend reads them, as are peak_bytes and segments
  std::int64_t peak_bytes = 0;
  std::int64_t segments = 0;
  std::int64_t charged_bytes = 0;  // of other data in the same budget
  std::int64_t host_bytes = 0;     // in the host tier
  std::int64_t host_peak_bytes = 0;
  std::int64_t host_segments = 0;
  std::int64_t lent_bytes = 0;  // copies for readers of other engines, in the host tier's budget
  std::int64_t downloaded = 0;  // segments moved to the host tier, and from there
  std::int64_t uploaded = 0;
  std::int64_t evicted = 0;  // lost
};

}  // namespace baton
