// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/anchors/anchor_store.h"

#include <algorithm>
#include <cmath>

#include "engine/tensor/tensor.h"

namespace baton {
namespace {

constexpr std::size_t kRecords = 64;
constexpr std::size_t kMaxPools = 4096;  // prompts that never recur leave pools behind

struct AnchorHeap {
  std::vector<std::uint16_t> offset, text;
};

}  // namespace

std::int64_t Anchor::bytes() const {
  std::size_t bytes = offset.size_bytes() + text_kv.size_bytes() + sizeof(Anchor);
  if (text) bytes += text->tokens.size() * sizeof(TokenId) + text->sketch.size() * sizeof(float);
  return static_cast<std::int64_t>(bytes);
}

void add_offsets(std::span<float> rows, const AnchorChoice& choice, std::int32_t layer, std::int32_t n) {
  for (std::size_t a = 0; a < choice.anchors.size(); ++a) {
    const Anchor& anchor = *choice.anchors[a];
    const std::span<const std::uint16_t> offset = anchor.offset_of(layer);
    const auto width = static_cast<std::size_t>(2 * anchor.shape.width);
    for (std::int32_t i = 0; i < n; ++i) {
      const auto from =
          static_cast<std::size_t>(std::min(choice.alignments[a]->to[static_cast<std::size_t>(i)], anchor.length - 1));
      for (std::size_t c = 0; c < width; ++c)
        rows[static_cast<std::size_t>(i) * width + c] += choice.weights[a] * bf16_to_f32(offset[from * width + c]);
    }
  }
}

AnchorStore::AnchorStore(std::int64_t budget_bytes) : budget_(budget_bytes), worker_([this] { work(); }) {}

AnchorStore::~AnchorStore() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  samples_.clear();
  wake_.notify_all();
}

AnchorPoolView AnchorStore::ask(const PlaceKey& key) {
  flush();
  std::int64_t freed = 0;
  AnchorPoolView view;
  {
    const std::lock_guard lock(mutex_);
    Pool& pool = pool_of(key, freed);
    view = pool.view;
    ++pool.view.turns;
    ++pool.view.since_learning;
  }
  if (freed > 0 && on_bytes_) on_bytes_(-freed);
  return view;
}

/// Returns the pool, and makes it where it is missing. Where there are too many pools, the least recently used one is
/// removed.
AnchorStore::Pool& AnchorStore::pool_of(const PlaceKey& key, std::int64_t& freed) {
  if (pools_.size() >= kMaxPools && pools_.find(key) == pools_.end()) {
    const auto oldest = std::min_element(pools_.begin(), pools_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    });
    freed += prune(oldest->second, 0);
    pools_.erase(oldest);
  }
  Pool& pool = pools_[key];
  pool.last_use = ++clock_;
  return pool;
}

void AnchorStore::learning(const PlaceKey& key) {
  const std::lock_guard lock(mutex_);
  pools_[key].view.since_learning = 0;
}

void AnchorStore::learn(AnchorSample sample) {
  const std::lock_guard lock(mutex_);
  samples_.push_back(std::move(sample));
  ++pending_;
  wake_.notify_all();
}

void AnchorStore::flush() const {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return pending_ == 0 || stopping_; });
}

void AnchorStore::work() {
  for (;;) {
    AnchorSample sample;
    std::function<void(const PlaceSample&)> seen;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !samples_.empty(); });
      if (stopping_) {
        wake_.notify_all();
        return;
      }
      sample = std::move(samples_.front());
      samples_.pop_front();
    }
    try {
      {
        const std::lock_guard lock(mutex_);
        seen = on_sample_;
      }
      if (seen) seen(sample);
      make(sample);
    } catch (const std::exception&) {
      // Without memory the sample is lost; later texts will make other anchors.
    }
    const std::lock_guard lock(mutex_);
    --pending_;
    wake_.notify_all();
  }
}

void AnchorStore::on_sample(std::function<void(const PlaceSample&)> seen) {
  const std::lock_guard lock(mutex_);
  on_sample_ = std::move(seen);
}

void AnchorStore::make(AnchorSample& sample) {
  auto memory = std::make_shared<AnchorHeap>();
  memory->offset.resize(sample.truth.size());
  memory->text = std::move(sample.text_kv);
  const auto rows = static_cast<std::size_t>(sample.length) * 2 * static_cast<std::size_t>(sample.shape.width);
  std::vector<float> corrected(rows);
  double squares = 0.0, left = 0.0, plain = 0.0;
  for (std::int32_t layer = 0; layer < sample.shape.layers; ++layer) {
    const std::size_t first = static_cast<std::size_t>(layer) * rows;
    for (std::size_t i = 0; i < rows; ++i) corrected[i] = bf16_to_f32(sample.base[first + i]);
    add_offsets(corrected, sample.choice, layer, sample.length);
    for (std::size_t i = 0; i < rows; ++i) {
      const float truth = bf16_to_f32(sample.truth[first + i]), base = bf16_to_f32(sample.base[first + i]);
      memory->offset[first + i] = f32_to_bf16(truth - base);
      if (layer == 0) continue;  // depends on the token alone
      squares += double{truth} * truth;
      plain += double{truth - base} * (truth - base);
      left += double{truth - corrected[i]} * (truth - corrected[i]);
    }
  }
  auto anchor = std::make_shared<Anchor>();
  anchor->shape = sample.shape;
  anchor->text = sample.text;
  anchor->before = std::move(sample.before);
  anchor->length = sample.length;
  anchor->following = sample.following;
  anchor->offset = memory->offset;
  anchor->text_kv = memory->text;
  anchor->owner = memory;
  const auto relative = [&](double sum) { return squares > 0.0 ? static_cast<float>(std::sqrt(sum / squares)) : 0.0f; };
  const AnchorRecord record{sample.choice.distance, relative(left), relative(plain)};
  add(sample.key, std::move(anchor), sample.size, sample.choice.anchors.empty() ? nullptr : &record);
}

void AnchorStore::add(const PlaceKey& key, SharedAnchor anchor, std::int32_t size, const AnchorRecord* record) {
  std::int64_t change = anchor->bytes();
  if (change > budget_) return;
  {
    const std::lock_guard lock(mutex_);
    std::int64_t freed = 0;
    Pool* found = nullptr;
    try {
      found = &pool_of(key, freed);
      auto& anchors = found->view.anchors;
      if (anchors.size() == anchors.capacity()) anchors.reserve(2 * anchors.size() + 1);  // from here on nothing fails
      if (record != nullptr) found->view.records.reserve(kRecords);
    } catch (...) {
      if (on_bytes_) on_bytes_(-freed);
      throw;
    }
    Pool& pool = *found;
    change -= freed;
    const auto twin = std::find_if(pool.view.anchors.begin(), pool.view.anchors.end(), [&](const SharedAnchor& other) {
      return other->text->hash == anchor->text->hash && other->text->tokens == anchor->text->tokens &&
             std::equal(other->before.begin(), other->before.end(), anchor->before.begin(), anchor->before.end(),
                        [](const auto& a, const auto& b) { return a->tokens == b->tokens; });
    });
    if (twin != pool.view.anchors.end()) {
      change -= (*twin)->bytes();
      *twin = std::move(anchor);
    } else {
      pool.view.anchors.push_back(std::move(anchor));
      ++stats_.learned;
    }
    if (record != nullptr) {
      if (pool.view.records.size() < kRecords) {
        pool.view.records.push_back(*record);
      } else {
        pool.view.records[pool.next_record++ % kRecords] = *record;
      }
    }
    stats_.bytes += change + freed;  // `change` holds -freed, which prune() has already subtracted
    change -= prune(pool, static_cast<std::size_t>(std::max(1, size)));
    change -= keep_budget();
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.bytes);
  }
  if (on_bytes_) on_bytes_(change);
}

/// Removes the least used anchors of the older half (KVComm section 3.3). Returns the bytes freed.
std::int64_t AnchorStore::prune(Pool& pool, std::size_t size) {
  std::int64_t freed = 0;
  std::vector<SharedAnchor>& anchors = pool.view.anchors;
  while (anchors.size() > size) {
    const auto half = anchors.begin() + static_cast<std::ptrdiff_t>((anchors.size() + 1) / 2);  // oldest first
    const auto least = std::min_element(anchors.begin(), half,
                                        [](const SharedAnchor& a, const SharedAnchor& b) { return a->uses < b->uses; });
    freed += (*least)->bytes();
    anchors.erase(least);
    ++stats_.pruned;
  }
  stats_.bytes -= freed;
  return freed;
}

/// Removes anchors of the largest pool first.
std::int64_t AnchorStore::keep_budget() {
  std::int64_t freed = 0;
  while (stats_.bytes > budget_) {
    Pool* largest = nullptr;
    std::int64_t most = 0;
    for (auto& [key, pool] : pools_) {
      std::int64_t bytes = 0;
      for (const SharedAnchor& anchor : pool.view.anchors) bytes += anchor->bytes();
      if (bytes > most) most = bytes, largest = &pool;
    }
    if (largest == nullptr) break;
    freed += prune(*largest, largest->view.anchors.size() - 1);
  }
  return freed;
}

std::vector<SharedAnchor> AnchorStore::anchors(const std::string& slot, const std::string& pool,
                                               std::size_t max_count) const {
  std::vector<SharedAnchor> found;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, one] : pools_) {
    if (key.slot != slot || key.pool != pool) continue;
    const auto count = std::min(one.view.anchors.size(), max_count - found.size());
    found.insert(found.end(), one.view.anchors.begin(), one.view.anchors.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return found;
}

AnchorStoreStats AnchorStore::stats() const {
  const std::lock_guard lock(mutex_);
  AnchorStoreStats stats = stats_;
  stats.pools = static_cast<std::int64_t>(pools_.size());
  for (const auto& [key, pool] : pools_) stats.anchors += static_cast<std::int64_t>(pool.view.anchors.size());
  return stats;
}

std::map<PlaceKey, AnchorPoolView> AnchorStore::all() const {
  flush();
  const std::lock_guard lock(mutex_);
  std::map<PlaceKey, AnchorPoolView> views;
  for (const auto& [key, pool] : pools_) views.emplace(key, pool.view);
  return views;
}

void AnchorStore::restore(const PlaceKey& key, AnchorPoolView view) {
  const auto size = static_cast<std::int32_t>(view.anchors.size());
  for (SharedAnchor& anchor : view.anchors) add(key, std::move(anchor), size);
  const std::lock_guard lock(mutex_);
  stats_.learned -= size;
  pools_[key].view.records = std::move(view.records);
  pools_[key].view.turns = view.turns;
}

}  // namespace baton
