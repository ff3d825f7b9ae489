// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one word: characters to ids, then the merges in the order of their ranks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/vocabulary.h"

namespace baton::text {

/// Pairs of ids -> rank of their merge and the id they become. Open addressing: one look-up per neighbour pair is
/// where encoding spends its time.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId id = 0;
  };
  explicit MergeTable(std::size_t merges);
  /// A pair that is already there takes the new merge.
  void set(TokenId left, TokenId right, Merge merge);
  const Merge* find(TokenId left, TokenId right) const;

 private:
  struct Slot {
    std::uint64_t key = 0;
    Merge merge;
  };
  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
};

/// Immutable; safe from any thread. Ids as `tokenizers` gives them, time n log n in the length of the word.
class Bpe {
 public:
  /// Reads "model" of a tokenizer.json and adds its tokens to `vocabulary`.
  Bpe(const Json& model, Vocabulary& vocabulary, const Where& where);

  /// Memory for one encode call.
  struct Scratch {
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> ranks, next, previous;
    std::vector<std::uint64_t> heap;
  };
  void encode(std::string_view word, std::vector<TokenId>& out, Scratch& scratch) const;

  /// With ignore_merges a word that is a token is taken whole; special tokens never are.
  void never_whole(std::string_view token) { words_.erase(token); }

 private:
  void read_vocabulary(const Json& model, Vocabulary& vocabulary, const Where& where);
  void read_merges(const Json& model, const Vocabulary& vocabulary, const Where& where);
  void to_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  std::uint32_t rank(TokenId left, TokenId right) const;

  std::unordered_map<char32_t, TokenId> characters_;
  std::array<TokenId, 0x180> low_characters_{};  // those of the byte-level alphabet without a hash
  std::optional<std::array<TokenId, 256>> bytes_;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_ = false;
  std::unordered_map<std::string_view, TokenId> words_;  // of the vocabulary's strings; filled only for ignore_merges
  MergeTable merges_{0};
  std::vector<TokenId> merged_;  // [rank]
};

}  // namespace baton::text
