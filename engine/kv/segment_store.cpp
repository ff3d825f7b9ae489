// SPDX-License-Identifier: Apache-2.0
#include "engine/kv/segment_store.h"

#include <algorithm>
#include <condition_variable>

#include "engine/kv/segment_tiers.h"

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

}  // namespace baton
