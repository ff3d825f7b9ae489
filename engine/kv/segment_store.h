// SegmentStore: accounts for the segments of an engine and keeps them within a budget. Who holds a handle keeps the
// segment wanted, not alive: over the budget the store takes back what is cheapest to lose, and its readers compute it
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/kv/segment.h"

namespace baton {

/// A place for one segment in a store. Any thread; dropping the last handle frees the segment.
class StoredSegment {
 public:
  std::int32_t tokens = 0;  // with KV
  int hops = 0;
  std::string origin;

 private:
  friend class SegmentStore;
  std::shared_ptr<const Segment> segment_;  // guarded by the store's mutex; null: taken back
  std::int64_t readers_ = 0;                // planned and still to come
  std::uint64_t last_use_ = 0;
};

using SegmentHandle = std::shared_ptr<StoredSegment>;

struct SegmentStoreStats {
  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t segments = 0;
  std::int64_t charged_bytes = 0;  // of others, in the same budget
  std::int64_t evicted = 0;
};

class SegmentStore {
 public:
  explicit SegmentStore(std::int64_t budget_bytes);

  /// Takes the segment in; `readers`: how often it will be read, as far as the plan knows (it decides what goes first).
  /// Null when it is larger than the whole budget.
  SegmentHandle add(std::shared_ptr<const Segment> segment, std::int64_t readers);

  /// The segment for as long as the result lives, or null when it was taken back. One of the planned readers is over.
  std::shared_ptr<const Segment> read(const SegmentHandle& handle);

  /// The same without counting as a use.
  std::shared_ptr<const Segment> peek(const SegmentHandle& handle) const;

  /// Bytes of others that count in the same budget came or went; segments make room for them.
  void charge(std::int64_t bytes);

  /// Takes everything back: handles stay, empty. Nothing is taken in any more.
  void close();

  SegmentStoreStats stats() const;
  std::int64_t budget_bytes() const;

 private:
  struct State;  // shared with the handles' deleters, which may outlive the store
  std::shared_ptr<State> state_;
};

}  // namespace baton
