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
  /// What was taken back: freed by the caller without the lock, as a backend may take its time.
  using Taken = std::vector<std::shared_ptr<const Segment>>;

  SegmentTiers(std::int64_t budget_bytes, std::int64_t host_budget_bytes)
      : budget(budget_bytes), host_budget(host_budget_bytes) {}

  void add(StoredSegment& entry, std::shared_ptr<const Segment> segment);
  void remove(StoredSegment& entry, Taken& taken);
  /// All that it holds.
  void take_back(StoredSegment& entry, Taken& taken);

  /// A copy for other engines; taken where the host tier has no room for it.
  void lend(StoredSegment& entry, std::shared_ptr<const Segment> copy, Taken& taken);

  /// Moves others than `but` down until the device's budget holds, as far as nobody holds them; without a host tier
  /// they are lost, whoever holds them.
  void make_room(Lock& lock, Taken& taken, const StoredSegment* but = nullptr);
  /// All that nobody holds.
  void move_all_down(Lock& lock, Taken& taken);
  /// Null when the device has no room for it, even without all that nobody holds.
  std::shared_ptr<const Segment> move_up(Lock& lock, Taken& taken, StoredSegment& entry);

  const std::int64_t budget;
  const std::int64_t host_budget;
  SegmentStoreStats stats;
  std::vector<StoredSegment*> entries;

 private:
  bool is_held(const StoredSegment& entry) const;
  StoredSegment* least(bool in_host, const StoredSegment* but) const;
  void count(const StoredSegment& entry, int sign);
  void set_tier(StoredSegment& entry, bool in_host);
  void evict(StoredSegment& entry, Taken& taken);
  void take(StoredSegment& entry, Taken& taken);
  void take_lent(StoredSegment& entry, Taken& taken);
  void make_room_in_host(Taken& taken);
  void move_down(Lock& lock, Taken& taken, StoredSegment& entry);
};

}  // namespace baton
