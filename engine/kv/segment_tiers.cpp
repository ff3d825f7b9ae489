// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/segment_tiers.h"

#include <algorithm>

namespace baton {
namespace {

std::int64_t bytes_of(const Segment& segment) { return static_cast<std::int64_t>(segment.bytes()); }

/// Frees the released segments, then makes the copy, both without the lock. Returns null when memory is short.
template <class Copy>
std::shared_ptr<const Segment> with_unlocked(SegmentTiers::Lock& lock, SegmentTiers::Released& released,
                                             const Copy& copy) {
  std::shared_ptr<const Segment> made;
  lock.unlock();
  released.clear();
  try {
    made = copy();
  } catch (const std::exception&) {  // out of memory: the readers recompute the segment
  }
  lock.lock();
  return made;
}

}  // namespace

SegmentTiers::Released SegmentTiers::room_for_all() const {
  Released released;
  released.reserve(2 * entries.size() + 2);  // with copies for other engines, and for a new entry
  return released;
}

void SegmentTiers::add(StoredSegment& entry, std::shared_ptr<const Segment> segment) {
  entries.push_back(&entry);
  entry.segment_ = std::move(segment);
  count(entry, 1);
}

SegmentTiers::Taken SegmentTiers::take(StoredSegment& entry) noexcept {
  if (entry.segment_) count(entry, -1);
  if (entry.exported_) stats.exported_bytes -= bytes_of(*entry.exported_);
  return {std::move(entry.segment_), std::move(entry.exported_)};
}

SegmentTiers::Taken SegmentTiers::remove(StoredSegment& entry) noexcept {
  std::erase(entries, &entry);
  return take(entry);
}

void SegmentTiers::release_segment(StoredSegment& entry, Released& released) {
  if (!entry.segment_) return;
  count(entry, -1);
  released.push_back(std::move(entry.segment_));
}

void SegmentTiers::export_kv(StoredSegment& entry, std::shared_ptr<const Segment> copy, Released& released) {
  release_lent(entry, released);
  const std::int64_t bytes = bytes_of(*copy);
  if (stats.exported_bytes + bytes > host_budget) {
    released.push_back(std::move(copy));
    return;
  }
  entry.exported_ = std::move(copy);
  stats.exported_bytes += bytes;
  make_room_in_host(released);
}

void SegmentTiers::release_lent(StoredSegment& entry, Released& released) {
  if (!entry.exported_) return;
  stats.exported_bytes -= bytes_of(*entry.exported_);
  released.push_back(std::move(entry.exported_));
}

void SegmentTiers::make_room(Lock& lock, Released& released, const StoredSegment* except) {
  while (stats.bytes + stats.charged_bytes > budget) {
    StoredSegment* entry = next_to_evict(false, except);
    if (entry == nullptr) break;
    download(lock, released, *entry);
  }
}

void SegmentTiers::download_all(Lock& lock, Released& released) {
  while (StoredSegment* entry = next_to_evict(false, nullptr)) download(lock, released, *entry);
}

void SegmentTiers::download(Lock& lock, Released& released, StoredSegment& entry) {
  set_tier(entry, true);
  make_room_in_host(released);  // it may itself be the first to be evicted
  const std::shared_ptr<const Segment> there = entry.segment_;
  if (!there) return;
  std::shared_ptr<const Segment> copy = with_unlocked(lock, released, [&] { return there->copy_to_host(); });
  const bool wanted = std::find(entries.begin(), entries.end(), &entry) != entries.end() && entry.segment_ == there;
  if (wanted && copy) {
    entry.segment_ = std::move(copy);
    ++stats.downloaded;
  } else if (wanted) {
    evict(entry, released);
  }
  released.push_back(there);
}

std::shared_ptr<const Segment> SegmentTiers::upload(Lock& lock, Released& released, StoredSegment& entry) {
  const std::shared_ptr<const Segment> here = entry.segment_;
  std::int64_t staying = stats.charged_bytes + bytes_of(*here);
  for (const StoredSegment* other : entries) {
    if (other->segment_ && !other->in_host_ && is_held(*other)) staying += bytes_of(*other->segment_);
  }
  if (staying > budget) return nullptr;
  set_tier(entry, false);
  make_room(lock, released, &entry);
  std::shared_ptr<const Segment> copy = with_unlocked(lock, released, [&] { return here->copy_to_device(); });
  released.push_back(here);
  if (!copy) {
    set_tier(entry, true);
    make_room_in_host(released);
    return nullptr;
  }
  entry.segment_ = copy;
  ++stats.uploaded;
  stats.peak_bytes = std::max(stats.peak_bytes, stats.bytes);
  return copy;
}

/// With a host tier, a segment that a caller holds stays: moving it would free no memory.
bool SegmentTiers::is_held(const StoredSegment& entry) const {
  return host_budget > 0 && entry.segment_.use_count() > 1;
}

/// All segments cost about the same to compute per byte, so the first to evict is the one with the fewest planned
/// reads, and among equals the least recently used. Null: none may be evicted.
StoredSegment* SegmentTiers::next_to_evict(bool in_host, const StoredSegment* except) const {
  const auto worth = [](const StoredSegment& entry) {
    return std::pair(entry.readers_ + entry.holds_, entry.last_use_);
  };
  StoredSegment* found = nullptr;
  for (StoredSegment* entry : entries) {
    if (entry->segment_ == nullptr || entry->in_host_ != in_host || entry == except) continue;
    if (!in_host && is_held(*entry)) continue;
    if (found == nullptr || worth(*entry) < worth(*found)) found = entry;
  }
  return found;
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

void SegmentTiers::evict(StoredSegment& entry, Released& released) {
  release_segment(entry, released);
  ++stats.evicted;
}

void SegmentTiers::make_room_in_host(Released& released) {
  while (stats.host_bytes + stats.exported_bytes > host_budget) evict(*next_to_evict(true, nullptr), released);
  stats.host_peak_bytes = std::max(stats.host_peak_bytes, stats.host_bytes + stats.exported_bytes);
}

}  // namespace baton
