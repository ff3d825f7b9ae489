// SPDX-License-Identifier: Apache-2.0
// AnchorStore: the anchor pools of one model. Pools are bounded in anchors and all of them together in bytes; new
// anchors are made from measured KV on a thread of the store's own, and join their pool without taking anything away
// from readers.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "engine/reuse/anchors/anchor_choice.h"
#include "engine/reuse/anchors/anchor_stats.h"

namespace baton {

/// A text with the KV that it really has in a prompt, and that which it was handed over with. bf16, in host memory.
struct AnchorSample {
  AnchorKey key;
  std::string reader;     // whose prompt it is
  std::int32_t size = 0;  // anchors that the pool may hold
  AnchorShape shape;
  SharedText text;
  std::vector<SharedText> before;
  std::int32_t length = 0;             // n
  std::vector<std::uint16_t> truth;    // [L, n, 2 K D] keys before RoPE, then values
  std::vector<std::uint16_t> base;     // [L, n, 2 K D]
  std::int32_t following = 0;          // t
  std::vector<std::uint16_t> text_kv;  // [L, t, 2 K D]
  bool generated = false;              // the text is an answer
  AnchorChoice choice;                 // how the pool would have corrected it; empty: there was no anchor
};

/// Any thread.
class AnchorStore {
 public:
  explicit AnchorStore(std::int64_t budget_bytes);
  ~AnchorStore();
  AnchorStore(const AnchorStore&) = delete;
  AnchorStore& operator=(const AnchorStore&) = delete;

  /// The pool as it is, with all samples that were given before; what is asked for counts as a turn.
  AnchorPoolView ask(const AnchorKey& key);
  /// The turn was computed in full; the pool waits as long as `check` again.
  void learning(const AnchorKey& key);

  /// Measures what the pool's correction would have left, and adds the sample as an anchor. Returns at once.
  void learn(AnchorSample sample);
  /// Waits until all samples are anchors.
  void flush() const;

  /// Adds an anchor as it is; one of the same texts in the same place is replaced.
  void add(const AnchorKey& key, SharedAnchor anchor, std::int32_t size, const AnchorRecord* record = nullptr);

  /// The anchors of all pools of that name and slot, at most `most`.
  std::vector<SharedAnchor> anchors(const std::string& slot, const std::string& pool, std::size_t most) const;

  AnchorStoreStats stats() const;
  std::int64_t budget_bytes() const { return budget_; }
  /// Called without locks held, with the change in bytes, whenever anchors come or go; set before use.
  void on_bytes(std::function<void(std::int64_t)> changed) { on_bytes_ = std::move(changed); }

  /// Called with every sample that is learned, on the store's thread, one at a time; null: with none.
  void on_sample(std::function<void(const AnchorSample&)> seen);

  /// Pools in the order of their keys.
  std::map<AnchorKey, AnchorPoolView> all() const;
  void restore(const AnchorKey& key, AnchorPoolView pool);

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
  Pool& pool_of(const AnchorKey& key, std::int64_t& freed);

  const std::int64_t budget_;
  std::function<void(std::int64_t)> on_bytes_;
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_, idle_;
  std::map<AnchorKey, Pool> pools_;
  std::deque<AnchorSample> samples_;
  std::function<void(const AnchorSample&)> on_sample_;
  std::size_t pending_ = 0;  // samples given and not yet anchors
  bool stopping_ = false;
  std::uint64_t clock_ = 0;
  AnchorStoreStats stats_;
  std::jthread worker_;  // last: it uses all of the above
};

/// [rows, 2 K D] += sum over the choice's anchors of weight * offset; one layer of one text. `aligned` rows only.
void add_offsets(std::span<float> rows, const AnchorChoice& choice, std::int32_t layer, std::int32_t n);

}  // namespace baton
