// SPDX-License-Identifier: Apache-2.0
// SegmentStore: accounts for the segments of an engine and keeps them within a budget. Who holds a handle keeps the
// segment wanted, not alive: over the budget the store takes back what is cheapest to lose, and its readers compute it
// again. With a host tier it goes to host memory first, within a budget of its own, and returns when it is read:
// docs/decisions/0018-host-tier.md.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/kv/segment_handle.h"

namespace baton {

/// Any thread; but with a host tier add, read, settle and park copy, so they are the engine's thread's.
class SegmentStore {
 public:
  /// host_budget_bytes: of the host tier; 0: there is none.
  explicit SegmentStore(std::int64_t budget_bytes, std::int64_t host_budget_bytes = 0);

  /// Takes the segment in; `readers`: how often it will be read, as far as the plan knows (it decides what goes first).
  /// Null when it is larger than the whole budget.
  SegmentHandle add(std::shared_ptr<const Segment> segment, std::int64_t readers);

  /// One of the planned readers is over, and has the segment for as long as the result lives: null when it was taken
  /// back, or is in the host tier and there is no room for it where it could be read.
  std::shared_ptr<const Segment> read(const SegmentHandle& handle);

  /// One of the planned readers is over and did not need it.
  void use(const SegmentHandle& handle);

  /// The segment, to look at: it may be in the host tier (Segment::on_host). Does not count as a use.
  std::shared_ptr<const Segment> peek(const SegmentHandle& handle) const;

  /// A copy in host memory for readers of other engines, which goes with the handle. It counts in the host tier, and is
  /// not taken in where there is no room in that.
  void lend(const SegmentHandle& handle, std::shared_ptr<const Segment> copy);
  /// That copy, or null.
  std::shared_ptr<const Segment> lent(const SegmentHandle& handle) const;

  /// Bytes of others that count in the same budget came or went. Segments make room for them: now, or, where they would
  /// have to be copied, with the next call that may.
  void charge(std::int64_t bytes);
  void settle();

  /// Sends what nobody holds to the host tier, where there is one.
  void park();

  /// Takes everything back: handles stay, empty. Nothing is taken in any more.
  void close();

  SegmentStoreStats stats() const;
  std::int64_t budget_bytes() const;

 private:
  struct State;  // shared with the handles' deleters, which may outlive the store
  std::shared_ptr<State> state_;
};

}  // namespace baton
