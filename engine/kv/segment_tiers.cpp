// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/segment_tiers.h"

#include <algorithm>

namespace baton {
namespace {

std::int64_t bytes_of(const Segment& segment) { return static_cast<std::int64_t>(segment.bytes()); }

/// What was taken is given back first, and the copy made, both without the lock. Null: there is no memory for it.
template <class Copy>
std::shared_ptr<const Segment> without(SegmentTiers::Lock& lock, SegmentTiers::Taken& taken, const Copy& copy) {
  std::shared_ptr<const Segment> made;
  lock.unlock();
  taken.clear();
  try {
    made = copy();
  } catch (const std::exception&) {  // its readers compute
  }
  lock.lock();
  return made;
}

}  // namespace

void SegmentTiers::add(StoredSegment& entry, std::shared_ptr<const Segment> segment) {
  entry.segment_ = std::move(segment);
  entries.push_back(&entry);
  count(entry, 1);
}

void SegmentTiers::remove(StoredSegment& entry, Taken& taken) {
  take_back(entry, taken);
  std::erase(entries, &entry);
}

void SegmentTiers::take_back(StoredSegment& entry, Taken& taken) {
  take(entry, taken);
  take_lent(entry, taken);
}

void SegmentTiers::take(StoredSegment& entry, Taken& taken) {
  if (!entry.segment_) return;
  count(entry, -1);
  taken.push_back(std::move(entry.segment_));
}

void SegmentTiers::lend(StoredSegment& entry, std::shared_ptr<const Segment> copy, Taken& taken) {
  take_lent(entry, taken);
  const std::int64_t bytes = bytes_of(*copy);
  if (stats.lent_bytes + bytes > host_budget) {
    taken.push_back(std::move(copy));
    return;
  }
  entry.lent_ = std::move(copy);
  stats.lent_bytes += bytes;
  make_room_in_host(taken);
}

void SegmentTiers::take_lent(StoredSegment& entry, Taken& taken) {
  if (!entry.lent_) return;
  stats.lent_bytes -= bytes_of(*entry.lent_);
  taken.push_back(std::move(entry.lent_));
}

void SegmentTiers::make_room(Lock& lock, Taken& taken, const StoredSegment* but) {
  while (stats.bytes + stats.charged_bytes > budget) {
    StoredSegment* entry = least(false, but);
    if (entry == nullptr) break;
    move_down(lock, taken, *entry);
  }
}

void SegmentTiers::move_all_down(Lock& lock, Taken& taken) {
  while (StoredSegment* entry = least(false, nullptr)) move_down(lock, taken, *entry);
}

void SegmentTiers::move_down(Lock& lock, Taken& taken, StoredSegment& entry) {
  set_tier(entry, true);
  make_room_in_host(taken);  // it may itself be what goes first
  const std::shared_ptr<const Segment> there = entry.segment_;
  if (!there) return;
  std::shared_ptr<const Segment> copy = without(lock, taken, [&] { return there->copy_to_host(); });
  const bool wanted = std::find(entries.begin(), entries.end(), &entry) != entries.end() && entry.segment_ == there;
  if (wanted && copy) {
    entry.segment_ = std::move(copy);
    ++stats.moved_down;
  } else if (wanted) {
    evict(entry, taken);
  }
  taken.push_back(there);
}

std::shared_ptr<const Segment> SegmentTiers::move_up(Lock& lock, Taken& taken, StoredSegment& entry) {
  const std::shared_ptr<const Segment> here = entry.segment_;
  std::int64_t staying = stats.charged_bytes + bytes_of(*here);
  for (const StoredSegment* other : entries) {
    if (other->segment_ && !other->in_host_ && is_held(*other)) staying += bytes_of(*other->segment_);
  }
  if (staying > budget) return nullptr;
  set_tier(entry, false);
  make_room(lock, taken, &entry);
  std::shared_ptr<const Segment> copy = without(lock, taken, [&] { return here->copy_to_device(); });
  taken.push_back(here);
  if (!copy) {
    set_tier(entry, true);
    make_room_in_host(taken);
    return nullptr;
  }
  entry.segment_ = copy;
  ++stats.moved_up;
  stats.peak_bytes = std::max(stats.peak_bytes, stats.bytes);
  return copy;
}

/// With a host tier, a segment that is not only here stays: to move it would free nothing.
bool SegmentTiers::is_held(const StoredSegment& entry) const {
  return host_budget > 0 && entry.segment_.use_count() > 1;
}

/// All segments cost about the same to compute per byte, so what goes first is what will be read least, then what was
/// not used for longest. Null: none may go.
StoredSegment* SegmentTiers::least(bool in_host, const StoredSegment* but) const {
  StoredSegment* least = nullptr;
  for (StoredSegment* entry : entries) {
    if (entry->segment_ == nullptr || entry->in_host_ != in_host || entry == but) continue;
    if (!in_host && is_held(*entry)) continue;
    if (least == nullptr || std::pair(entry->readers_, entry->last_use_) < std::pair(least->readers_, least->last_use_))
      least = entry;
  }
  return least;
}

void SegmentTiers::count(const StoredSegment& entry, int sign) {
  (entry.in_host_ ? stats.host_bytes : stats.bytes) += sign * bytes_of(*entry.segment_);
  (entry.in_host_ ? stats.host_segments : stats.segments) += sign;
}

void SegmentTiers::set_tier(StoredSegment& entry, bool in_host) {
  count(entry, -1);
  entry.in_host_ = in_host;
  count(entry, 1);
}

void SegmentTiers::evict(StoredSegment& entry, Taken& taken) {
  take(entry, taken);
  ++stats.evicted;
}

void SegmentTiers::make_room_in_host(Taken& taken) {
  while (stats.host_bytes + stats.lent_bytes > host_budget) evict(*least(true, nullptr), taken);
  stats.host_peak_bytes = std::max(stats.host_peak_bytes, stats.host_bytes + stats.lent_bytes);
}

}  // namespace baton
