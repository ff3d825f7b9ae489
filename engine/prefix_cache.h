// PrefixCache: exact KV of the beginnings of prompts, for prompts that begin with the same tokens.
#pragma once

#include <cstdint>
#include <list>
#include <span>

#include "engine/kv/segment_store.h"
#include "engine/model/tokenizer.h"

namespace baton {

/// The engine's thread only. The segments count in the store and can be evicted there.
class PrefixCache {
 public:
  explicit PrefixCache(SegmentStore& store) : store_(store) {}

  struct Match {
    std::shared_ptr<const Segment> segment;
    std::int32_t length = 0;  // common tokens with KV
  };
  /// The entry that shares most tokens with the prompt, at most `longest`.
  Match find(std::span<const TokenId> prompt, std::int32_t longest);

  /// Keeps positions [0, n) of the cache for `tokens`, unless an entry has nearly all of it.
  void add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens);

  void clear() { entries_.clear(); }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    SegmentHandle handle;
  };
  SegmentStore& store_;
  std::list<Entry> entries_;  // the newest use first
};

}  // namespace baton
