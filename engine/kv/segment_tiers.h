// SPDX-License-Identifier: Apache-2.0
// SegmentTiers: which segments of a store are in the backend's memory and which in host memory, the order of eviction,
// and the copies. The caller holds the store's mutex; it is unlocked during copies. Handles may be dropped meanwhile,
// but only one thread copies, so no segment changes its tier.
#pragma once

#include <mutex>
#include <vector>

#include "engine/kv/segment_store.h"

namespace baton {

class SegmentTiers {
 public:
  using Lock = std::unique_lock<std::mutex>;
  /// Segments that are no longer stored. The caller frees them without the lock, because a backend may block in
  /// release.
  using Released = std::vector<std::shared_ptr<const Segment>>;

  SegmentTiers(std::int64_t budget_bytes, std::int64_t host_budget_bytes)
      : budget(budget_bytes), host_budget(host_budget_bytes) {}

  /// Returns an empty list with room for all segments. The functions that release segments do not allocate memory, so
  /// that none of them fails half-way.
  Released room_for_all() const;

  void add(StoredSegment& entry, std::shared_ptr<const Segment> segment);
  /// An entry's segment and its copy for other engines.
  struct Taken {
    std::shared_ptr<const Segment> segment, exported;
  };
  /// Takes both out of the entry, which stays; remove() removes it. The caller frees them without the lock.
  Taken take(StoredSegment& entry) noexcept;
  Taken remove(StoredSegment& entry) noexcept;

  /// Stores a copy for other engines, or releases it where the host tier has no room for it.
  void export_kv(StoredSegment& entry, std::shared_ptr<const Segment> copy, Released& released);

  /// Downloads segments other than `except` that no caller holds, until the device's budget holds. Without a host tier
  /// they are evicted, whether held or not.
  void make_room(Lock& lock, Released& released, const StoredSegment* except = nullptr);
  /// Downloads all segments that no caller holds.
  void download_all(Lock& lock, Released& released);
  /// Moves the entry's segment to the device and returns it. Null when the device has no room for it even after all
  /// segments that no caller holds have been downloaded.
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
