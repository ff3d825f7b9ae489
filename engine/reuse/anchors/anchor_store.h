// SPDX-License-Identifier: Apache-2.0
// AnchorStore: the anchor pools of one model. The number of anchors bounds each pool, and a byte budget bounds all
// pools together. The store's own thread makes new anchors from measured KV and adds them to their pool without
// changing what readers hold.
// Anchor files: one checksummed file for one model. Each anchor is read into memory of its own, which ends with it; a
// memory map would end the process when another one truncates the file (docs/decisions/memory.md).
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine/reuse/anchors/anchor_choice.h"

namespace baton {

/// The statistics of an anchor store.
struct AnchorStoreStats {
  std::int64_t bytes = 0;
  std::int64_t peak_bytes = 0;
  std::int64_t pools = 0;
  std::int64_t anchors = 0;
  std::int64_t learned = 0;  // samples since the store was made
  std::int64_t pruned = 0;
};

/// A text that is learned from, with what an anchor of it needs.
struct AnchorSample : PlaceSample {
  std::int32_t size = 0;  // maximum anchors of the pool
  SharedText text;
  std::vector<SharedText> before;
  std::int32_t following = 0;          // t
  std::vector<std::uint16_t> text_kv;  // of each layer [t, 2 K D]
  AnchorChoice choice;                 // how the pool would have corrected the text; empty: the pool had no anchor
};

/// All members are safe from any thread.
class AnchorStore {
 public:
  explicit AnchorStore(std::int64_t budget_bytes);
  ~AnchorStore();
  AnchorStore(const AnchorStore&) = delete;
  AnchorStore& operator=(const AnchorStore&) = delete;

  /// Returns the pool with all samples that were given before. The call counts as a turn of the pool.
  AnchorPoolView ask(const PlaceKey& key);
  /// Reports that the turn was computed in full, which restarts the pool's count of turns up to `check`.
  void learning(const PlaceKey& key);

  /// Queues a sample: the store's thread measures the error that the pool's correction would have left, and adds the
  /// sample as an anchor. Returns at once.
  void learn(AnchorSample sample);
  /// Waits until all queued samples are anchors.
  void flush() const;

  /// Adds an anchor. An anchor with the same key and texts is replaced.
  void add(const PlaceKey& key, SharedAnchor anchor, std::int32_t size, const AnchorRecord* record = nullptr);

  /// Returns the anchors of all pools of that name and slot, at most `max_count`.
  std::vector<SharedAnchor> anchors(const std::string& slot, const std::string& pool, std::size_t max_count) const;

  AnchorStoreStats stats() const;
  std::int64_t budget_bytes() const { return budget_; }
  /// Sets a callback that gets the change in bytes whenever anchors are added or removed. It is called without locks
  /// held, and must be set before the store is used.
  void on_bytes(std::function<void(std::int64_t)> changed) { on_bytes_ = std::move(changed); }

  /// Sets a callback that gets every learned sample, on the store's thread, one at a time; null: no callback.
  void on_sample(std::function<void(const PlaceSample&)> seen);

  /// Returns all pools in the order of their keys.
  std::map<PlaceKey, AnchorPoolView> all() const;
  void restore(const PlaceKey& key, AnchorPoolView pool);

 private:
  struct Pool {
    AnchorPoolView view;
    std::uint64_t last_use = 0;
    std::size_t next_record = 0;
  };
  void work();
  void make(AnchorSample& sample);
  std::int64_t prune(Pool& pool, std::size_t size);
  std::int64_t keep_budget();
  Pool& pool_of(const PlaceKey& key, std::int64_t& freed);

  const std::int64_t budget_;
  std::function<void(std::int64_t)> on_bytes_;
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;  // a sample was queued or made, or the store ends
  std::map<PlaceKey, Pool> pools_;
  std::deque<AnchorSample> samples_;
  std::function<void(const PlaceSample&)> on_sample_;
  std::size_t pending_ = 0;  // samples that are not anchors yet
  bool stopping_ = false;
  std::uint64_t clock_ = 0;
  AnchorStoreStats stats_;
  std::jthread worker_;  // declared last, since it uses all other members
};

/// Adds to rows [n, 2 K D] of one layer of one text the sum over the choice's anchors of weight * offset, for aligned
/// tokens only.
void add_offsets(std::span<float> rows, const AnchorChoice& choice, std::int32_t layer, std::int32_t n);

class AnchorFileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Writes all pools; an existing file is replaced atomically. Throws AnchorFileError when writing fails.
void save_anchors(const std::filesystem::path& file, const std::string& model_key, const AnchorStore& store);

/// Adds the pools of the file to the store and returns the number of anchors. Throws AnchorFileError and leaves the
/// store unchanged when the file is damaged or belongs to another model, shape or version.
std::int64_t load_anchors(const std::filesystem::path& file, const std::string& model_key, const KvWidth& shape,
                          AnchorStore& store);

}  // namespace baton
