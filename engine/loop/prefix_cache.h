// SPDX-License-Identifier: Apache-2.0
// PrefixCache: exact KV of prompt prefixes, for prompts that begin with the same tokens. The cache is a tree, so a
// common prefix is stored once: an entry holds only the tokens after the point where it branches off its parent.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/segment_handle.h"
#include "engine/kv/segment_store.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// Used by the engine's thread only. The segments count towards the store's budget, and the store may evict them.
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
    std::vector<Piece> pieces;  // contiguous, from position 0
    std::int32_t length = 0;    // tokens of all pieces
  };
  /// Returns the longest cached prefix of the prompt, at most `max_tokens` tokens.
  Match find(std::span<const TokenId> prompt, std::int32_t max_tokens);

  /// Returns the number of tokens of that prefix. Does not count as a use.
  std::int32_t length(std::span<const TokenId> prompt);

  /// Returns the first `length` tokens of a context, up to the first piece that was evicted or for which the device has
  /// no memory.
  Match read(const KeptContext& context, std::int32_t length);

  /// Returns where the KV of that prefix is. Does not count as a use; some of it may have been evicted.
  std::vector<KeptContext::Piece> pieces(std::span<const TokenId> prompt) const;

  /// The minimum number of tokens for which an entry is worth its place.
  static constexpr std::int32_t kWorthKeeping = 16;

  /// Stores positions [0, n) of the cache as the prefix `tokens`, n being their number, if at least `least` of them are
  /// not cached yet.
  void add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens, std::int32_t least = kWorthKeeping);

  void clear();

  const SegmentStore& store() const { return store_; }

 private:
  struct Entry;
  struct Walk;
  Walk walk(std::span<const TokenId> prompt) const;
  Walk living(Walk walk);
  void use(const Walk& walk, std::size_t count);
  void drop(const Entry& entry);
  void drop_oldest();

  SegmentStore& store_;
  std::unique_ptr<Entry> root_;  // holds no tokens
  std::size_t entries_ = 0;
  std::uint64_t clock_ = 0;
};

}  // namespace baton
