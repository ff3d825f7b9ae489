// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/segment_store.h"

#include <algorithm>
#include <condition_variable>

namespace baton {

using Lock = SegmentTiers::Lock;
using Released = SegmentTiers::Released;
using Taken = SegmentTiers::Taken;

struct SegmentStore::State {
  State(std::int64_t budget, std::int64_t host_budget) : tiers(budget, host_budget) {}

  mutable std::mutex mutex;
  SegmentTiers tiers;
  bool closed = false;
  std::uint64_t clock = 0;
  std::int64_t freeing = 0;  // segments that other threads are releasing to the backend
  std::condition_variable freed;
};

SegmentStore::SegmentStore(std::int64_t budget_bytes, std::int64_t host_budget_bytes)
    : state_(std::make_shared<State>(budget_bytes, host_budget_bytes)) {}

SegmentHandle SegmentStore::add(std::shared_ptr<const Segment> segment, std::int64_t readers) {
  auto entry = std::make_unique<StoredSegment>();
  entry->tokens = segment->length();
  entry->hops = segment->hops;
  entry->origin = segment->origin;
  entry->readers_ = readers;
  SegmentHandle handle(entry.release(), [state = state_](StoredSegment* dropped) noexcept {
    Taken taken;
    {
      const std::lock_guard guard(state->mutex);
      taken = state->tiers.remove(*dropped);
      ++state->freeing;
    }
    taken = {};  // without the lock: the backend may block
    delete dropped;
    const std::lock_guard guard(state->mutex);
    --state->freeing;
    state->freed.notify_all();
  });
  handle->self_ = handle;
  Released released;
  Lock lock(state_->mutex);
  SegmentTiers& tiers = state_->tiers;
  if (state_->closed || static_cast<std::int64_t>(segment->bytes()) > tiers.budget) return nullptr;
  handle->last_use_ = ++state_->clock;
  released = tiers.room_for_all();
  tiers.add(*handle, std::move(segment));
  tiers.make_room(lock, released, handle.get());
  if (tiers.host_budget > 0) tiers.make_room(lock, released);  // all others are held: the new segment itself is moved
  tiers.stats.peak_bytes = std::max(tiers.stats.peak_bytes, tiers.stats.bytes);
  return handle;
}

std::shared_ptr<const Segment> SegmentStore::read(const SegmentHandle& handle) {
  if (!handle) return nullptr;
  use(handle);
  Released released;
  Lock lock(state_->mutex);
  if (!handle->segment_ || !handle->in_host_) return handle->segment_;
  released = state_->tiers.room_for_all();
  return state_->tiers.upload(lock, released, *handle);
}

void SegmentStore::plan_read(const SegmentHandle& handle) {
  if (!handle) return;
  const std::lock_guard lock(state_->mutex);
  ++handle->readers_;
}

void SegmentStore::use(const SegmentHandle& handle) {
  if (!handle) return;
  const std::lock_guard lock(state_->mutex);
  handle->last_use_ = ++state_->clock;
  handle->readers_ = std::max<std::int64_t>(0, handle->readers_ - 1);
}

SegmentHandle SegmentStore::hold(const SegmentHandle& handle) {
  if (!handle) return nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    ++handle->holds_;
  }
  // Of a hold only the segment itself: what a session continues turn after turn would else become a chain of holds.
  return SegmentHandle(handle.get(), [own = handle->self_.lock(), state = state_](StoredSegment* segment) noexcept {
    const std::lock_guard lock(state->mutex);
    --segment->holds_;
  });
}

std::shared_ptr<const Segment> SegmentStore::peek(const SegmentHandle& handle) const {
  if (!handle) return nullptr;
  const std::lock_guard lock(state_->mutex);
  return handle->segment_;
}

void SegmentStore::export_kv(const SegmentHandle& handle, std::shared_ptr<const Segment> copy) {
  if (!handle || !copy) return;
  Released released;
  const std::lock_guard lock(state_->mutex);
  released = state_->tiers.room_for_all();
  if (!state_->closed) state_->tiers.export_kv(*handle, std::move(copy), released);
}

std::shared_ptr<const Segment> SegmentStore::exported_kv(const SegmentHandle& handle) const {
  if (!handle) return nullptr;
  const std::lock_guard lock(state_->mutex);
  return handle->exported_;
}

void SegmentStore::charge(std::int64_t bytes) {
  Released released;
  Lock lock(state_->mutex);
  state_->tiers.stats.charged_bytes += bytes;
  if (state_->tiers.host_budget > 0) return;
  released = state_->tiers.room_for_all();
  state_->tiers.make_room(lock, released);
}

void SegmentStore::settle() {
  Released released;
  Lock lock(state_->mutex);
  if (state_->tiers.host_budget == 0) return;
  released = state_->tiers.room_for_all();
  state_->tiers.make_room(lock, released);
}

void SegmentStore::park() {
  Released released;
  Lock lock(state_->mutex);
  if (state_->tiers.host_budget == 0) return;
  released = state_->tiers.room_for_all();
  state_->tiers.download_all(lock, released);
}

void SegmentStore::close() {
  Lock lock(state_->mutex);
  state_->closed = true;
  const auto& entries = state_->tiers.entries;
  for (std::size_t i = 0; i < entries.size();) {
    Taken taken = state_->tiers.take(*entries[i]);
    if (!taken.segment && !taken.exported) {
      ++i;
      continue;
    }
    lock.unlock();
    taken = {};
    lock.lock();
    i = 0;  // other threads may have dropped handles
  }
  state_->freed.wait(lock, [&] { return state_->freeing == 0; });  // the backend may be destroyed when this returns
}

SegmentStoreStats SegmentStore::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->tiers.stats;
}

std::int64_t SegmentStore::budget_bytes() const { return state_->tiers.budget; }

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
