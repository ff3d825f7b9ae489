#include "engine/kv/segment_store.h"

#include <algorithm>
#include <condition_variable>

namespace baton {

struct SegmentStore::State {
  mutable std::mutex mutex;
  std::int64_t budget = 0;
  bool closed = false;
  std::uint64_t clock = 0;
  SegmentStoreStats stats;
  std::vector<StoredSegment*> entries;
  std::int64_t freeing = 0;  // segments that other threads are giving back to the backend
  std::condition_variable freed;

  /// All segments cost about the same to compute per byte, so what goes first is what will be read least, then what was
  /// not used for longest. Call with the mutex held; what is returned is freed by the caller without it.
  std::vector<std::shared_ptr<const Segment>> make_room() {
    std::vector<std::shared_ptr<const Segment>> taken;
    while (stats.bytes + stats.charged_bytes > budget) {
      const auto full = [](const StoredSegment* entry) { return entry->segment_ != nullptr; };
      StoredSegment* least = nullptr;
      for (StoredSegment* entry : entries) {
        if (!full(entry)) continue;
        if (least == nullptr ||
            std::pair(entry->readers_, entry->last_use_) < std::pair(least->readers_, least->last_use_))
          least = entry;
      }
      if (least == nullptr) break;
      taken.push_back(take(*least));
      ++stats.evicted;
    }
    return taken;
  }

  std::shared_ptr<const Segment> take(StoredSegment& entry) {
    std::shared_ptr<const Segment> segment = std::move(entry.segment_);
    entry.segment_ = nullptr;
    if (segment) {
      stats.bytes -= static_cast<std::int64_t>(segment->bytes());
      --stats.segments;
    }
    return segment;
  }
};

SegmentStore::SegmentStore(std::int64_t budget_bytes) : state_(std::make_shared<State>()) {
  state_->budget = budget_bytes;
}

SegmentHandle SegmentStore::add(std::shared_ptr<const Segment> segment, std::int64_t readers) {
  const auto bytes = static_cast<std::int64_t>(segment->bytes());
  auto entry = std::make_unique<StoredSegment>();
  entry->tokens = segment->length();
  entry->hops = segment->hops;
  entry->origin = segment->origin;
  entry->readers_ = readers;
  std::vector<std::shared_ptr<const Segment>> taken;
  const std::lock_guard lock(state_->mutex);
  if (state_->closed || bytes > state_->budget) return nullptr;
  entry->segment_ = std::move(segment);
  entry->last_use_ = ++state_->clock;
  state_->stats.bytes += bytes;
  ++state_->stats.segments;
  taken = state_->make_room();
  state_->stats.peak_bytes = std::max(state_->stats.peak_bytes, state_->stats.bytes);
  state_->entries.push_back(entry.get());
  return SegmentHandle(entry.release(), [state = state_](StoredSegment* dropped) {
    std::shared_ptr<const Segment> given_back;
    {
      const std::lock_guard guard(state->mutex);
      given_back = state->take(*dropped);
      std::erase(state->entries, dropped);
      ++state->freeing;
    }
    given_back.reset();  // outside of the lock
    delete dropped;
    const std::lock_guard guard(state->mutex);
    --state->freeing;
    state->freed.notify_all();
  });
}

std::shared_ptr<const Segment> SegmentStore::read(const SegmentHandle& handle) {
  if (!handle) return nullptr;
  const std::lock_guard lock(state_->mutex);
  handle->last_use_ = ++state_->clock;
  handle->readers_ = std::max<std::int64_t>(0, handle->readers_ - 1);
  return handle->segment_;
}

std::shared_ptr<const Segment> SegmentStore::peek(const SegmentHandle& handle) const {
  if (!handle) return nullptr;
  const std::lock_guard lock(state_->mutex);
  return handle->segment_;
}

void SegmentStore::charge(std::int64_t bytes) {
  std::vector<std::shared_ptr<const Segment>> taken;
  const std::lock_guard lock(state_->mutex);
  state_->stats.charged_bytes += bytes;
  taken = state_->make_room();
}

void SegmentStore::close() {
  std::vector<std::shared_ptr<const Segment>> taken;
  std::unique_lock lock(state_->mutex);
  state_->closed = true;
  for (StoredSegment* entry : state_->entries) taken.push_back(state_->take(*entry));
  state_->freed.wait(lock, [&] { return state_->freeing == 0; });  // the backend may go when this returns
}

SegmentStoreStats SegmentStore::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

std::int64_t SegmentStore::budget_bytes() const { return state_->budget; }

}  // namespace baton
