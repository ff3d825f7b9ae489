// SPDX-License-Identifier: Apache-2.0
// SegmentTiers: which segments of a store are where the backend reads them, and which in host memory; who goes first,
// and the copies. All under the store's mutex, which copies let go of meanwhile: handles may be dropped then, but only
// one thread copies, so no segment changes its tier.
#pragma once

#include <mutex>
#include <vector>

#include "engine/kv/segment_store.h"

namespace baton {

class SegmentTiers {
 public:
  using Lock = std::unique_lock<std::mutex>;
  /// What was released back: freed by the caller without the lock, as a backend may take its time.
  using Released = std::vector<std::shared_ptr<const Segment>>;

  SegmentTiers(std::int64_t budget_bytes, std::int64_t host_budget_bytes)
      : budget(budget_bytes), host_budget(host_budget_bytes) {}

  void add(StoredSegment& entry, std::shared_ptr<const Segment> segment);
  void remove(StoredSegment& entry, Released& released);
  /// All that it holds.
  void release(StoredSegment& entry, Released& released);

  /// A copy for other engines; released where the host tier has no room for it.
  void lend(StoredSegment& entry, std::shared_ptr<const Segment> copy, Released& released);

  /// Moves others than `but` down until the device's budget holds, as far as nobody holds them; without a host tier
  /// they are lost, whoever holds them.
  void make_room(Lock& lock, Released& released, const StoredSegment* except = nullptr);
  /// All that nobody holds.
  void download_all(Lock& lock, Released& released);
  /// Null when the device has no room for it, even without all that nobody holds.
  std::shared_ptr<const Segment> upload(Lock& lock, Released& released, StoredSegment& entry);

  const std::int64_t budget;
  const std::int64_t host_budget;
  SegmentStoreStats stats;
  std::vector<StoredSegment*> entries;

 private:
  bool is_held(const StoredSegment& entry) const;
  StoredSegment* next_to_evict(bool in_host, const StoredSegment* except) const;
  void count(const StoredSegment& entry, int sign);
  void set_tier(StoredSegment& entry, bool in_host);
  void evict(StoredSegment& entry, Released& released);
  void release_segment(StoredSegment& entry, Released& released);
  void release_lent(StoredSegment& entry, Released& released);
  void make_room_in_host(Released& released);
  void download(Lock& lock, Released& released, StoredSegment& entry);
};

}  // namespace baton
