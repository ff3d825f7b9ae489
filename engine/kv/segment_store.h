// SPDX-License-Identifier: Apache-2.0
// SegmentStore: accounts for the segments of an engine and keeps them within a budget. A handle does not keep its
// segment in memory: beyond the budget the store evicts the segments that are cheapest to lose, and their readers
// compute them again. With a host tier, segments are downloaded to host memory first, which has a budget of its own,
// and uploaded when they are read (docs/decisions/memory.md).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/kv/segment_handle.h"

namespace baton {

/// Threads: any. With a host tier, add, read, settle and park copy segments and belong to the engine's thread.
class SegmentStore {
 public:
  /// budget_bytes bounds the segments in the backend's memory, host_budget_bytes those in the host tier; 0: no host
  /// tier.
  explicit SegmentStore(std::int64_t budget_bytes, std::int64_t host_budget_bytes = 0);

  /// Adds a segment and returns its handle, or null when it is larger than the whole budget or the store is closed.
  /// `readers` is the number of planned reads; segments with the fewest outstanding reads are evicted first.
  SegmentHandle add(std::shared_ptr<const Segment> segment, std::int64_t readers);

  /// Counts one planned read as done and returns the segment in the backend's memory, which stays there while the
  /// result lives. Returns null when the segment was evicted, or when it is in the host tier and the device has no room
  /// for it.
  std::shared_ptr<const Segment> read(const SegmentHandle& handle);

  /// Plans one more read.
  void plan_read(const SegmentHandle& handle);

  /// Counts one planned read as done without reading the segment.
  void use(const SegmentHandle& handle);

  /// Returns a handle of the same segment that counts as one more planned reader for as long as it lives. `handle` may
  /// be such a handle; it counts no longer than before.
  SegmentHandle hold(const SegmentHandle& handle);

  /// Returns the segment in whichever tier it is (Segment::on_host), or null when it was evicted. Does not count as a
  /// use.
  std::shared_ptr<const Segment> peek(const SegmentHandle& handle) const;

  /// Stores a copy in host memory for readers of other engines; it is freed with the handle. The copy counts in the
  /// host tier's budget and is dropped when it does not fit.
  void export_kv(const SegmentHandle& handle, std::shared_ptr<const Segment> copy);
  /// Returns that copy, or null.
  std::shared_ptr<const Segment> exported_kv(const SegmentHandle& handle) const;

  /// charge() adds `bytes` (negative: subtracts them) of other data to the same budget and evicts segments to make
  /// room. With a host tier that takes copies, so the eviction is left to settle() or to the next add or read.
  void charge(std::int64_t bytes);
  void settle();

  /// Downloads all segments that no caller holds to the host tier. Does nothing without a host tier.
  void park();

  /// Frees all segments; handles stay valid and empty, and add() returns null from now on. On return no thread is still
  /// releasing memory to the backend.
  void close();

  SegmentStoreStats stats() const;
  std::int64_t budget_bytes() const;

 private:
  struct State;  // shared with the handles' deleters, which may outlive the store
  std::shared_ptr<State> state_;
};

// SegmentTiers: which segments of a store are in the backend's memory and which in host memory, the order of eviction,
// and the copies. The caller holds the store's mutex; it is unlocked during copies. Handles may be dropped meanwhile,
// but only one thread copies, so no segment changes its tier.

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
