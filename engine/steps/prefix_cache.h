// SPDX-License-Identifier: Apache-2.0
// PrefixCache: exact KV of the beginnings of prompts, for prompts that begin with the same tokens. What prompts have in
// common is stored once: an entry holds only what differs from the one it branches off.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/segment_store.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The engine's thread only. The segments count in the store and can be evicted there.
class PrefixCache {
 public:
  explicit PrefixCache(SegmentStore& store);
  ~PrefixCache();

  /// Tokens [0, count) of the segment are at positions [begin, begin + count) of the prompt.
  struct Piece {
    std::shared_ptr<const Segment> segment;
    std::int32_t begin = 0;
    std::int32_t count = 0;
  };
  struct Match {
    std::vector<Piece> pieces;  // one behind the other, from position 0
    std::int32_t length = 0;    // tokens of all of them
  };
  /// The longest beginning of the prompt that is there, at most `longest` tokens.
  Match find(std::span<const TokenId> prompt, std::int32_t longest);

  /// Keeps positions [0, n) of the cache for `tokens`, unless nearly all of it is there.
  void add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens);

  void clear();

 private:
  struct Entry;
  struct Walk;
  Walk walk(std::span<const TokenId> prompt) const;
  Walk living(Walk walk);
  void use(const Walk& walk, std::size_t count);
  void drop(const Entry& entry);
  void drop_oldest();

  SegmentStore& store_;
  std::unique_ptr<Entry> root_;  // of no tokens
  std::size_t entries_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace baton
