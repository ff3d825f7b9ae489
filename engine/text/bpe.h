// SPDX-License-Identifier: Apache-2.0
// Tokens and their ids: the model's vocabulary and the added tokens, checked once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/hash.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_steps.h"

namespace baton::text {

class Vocabulary {
 public:
  /// Fails when the id is taken by another token, or the token has another id.
  void add(std::string_view token, TokenId id, const Where& where);

  std::optional<TokenId> id(std::string_view token) const;
  /// Empty: there is no such token. The text lives as long as the vocabulary.
  std::optional<std::string_view> token(TokenId id) const;
  TokenId size() const { return static_cast<TokenId>(by_id_.size()); }  // highest id + 1

 private:
  std::size_t slot_of(std::string_view token) const;
  void grow();

  /// Where a token's text is kept.
  struct Place {
    std::uint32_t block = 0;
    std::uint16_t begin = 0;
    std::uint16_t size = kNone;  // kLong: it is the whole block
  };
  static constexpr std::uint16_t kNone = 0xffff, kLong = 0xfffe;
  Place kept(std::string_view token);
  std::string_view text_at(Place place) const;

  // For 262,000 tokens, a map of strings took 17 MB more than the texts one after another, their places by id, and a
  // table of ids by hash.
  std::vector<std::string> blocks_;
  std::optional<std::uint32_t> open_;  // the block that has room
  std::vector<Place> by_id_;
  std::size_t count_ = 0;
  SeededHash hash_;
  std::vector<TokenId> slots_ = std::vector<TokenId>(2, -1);  // open addressing; -1: empty
};

/// Ids are bounded by the number of tokens that a file really has, so that a lying id cannot ask for much memory.
TokenId id_limit(std::size_t tokens);

// Byte-pair encoding of one word: maps characters to ids, then applies merges in the order of their ranks.

inline constexpr std::uint32_t kNoMerge = std::numeric_limits<std::uint32_t>::max();

/// Maps a pair of ids to the rank of their merge. The table uses open addressing, since encoding spends most of its
/// time in one look-up per pair of neighbours.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges);
  /// Adds a merge, which replaces an earlier merge of the same pair.
  void set(TokenId left, TokenId right, std::uint32_t rank);
  /// Returns kNoMerge for a pair that has none.
  std::uint32_t rank(TokenId left, TokenId right) const { return slots_[slot_of(left, right)].rank; }

 private:
  struct Slot {
    TokenId left = 0, right = 0;
    std::uint32_t rank = kNoMerge;  // kNoMerge: empty
  };
  std::size_t slot_of(TokenId left, TokenId right) const;

  SeededHash hash_;
  std::vector<Slot> slots_;
};

/// Two neighbouring texts that become one.
using Merge = std::pair<std::string_view, std::string_view>;

/// The tokens and merges of a model: what the "vocab" and "merges" of a tokenizer.json hold. The texts belong to the
/// file that they were read from.
struct BpeTables {
  using TakeToken = std::function<void(std::string_view text, TokenId id)>;
  /// By rank, one at a time: half a million of them take 16 MB.
  struct Merges {
    std::size_t size = 0;
    std::function<Merge(std::size_t rank)> at;  // throws ModelError
  };
  std::function<void(const TakeToken& take)> tokens;  // passes them all; throws ModelError
  std::function<Merges(const Vocabulary& vocabulary)>
      merges;  // makes them for the tokens' vocabulary; throws ModelError
};

/// Reads "vocab" and "merges" of the "model" of a tokenizer.json. The texts are those of `model`. Throws ModelError.
BpeTables tables_of(const Json& model, const Where& where);

/// Returns the two texts of "a b", or nothing.
std::optional<Merge> parse_merge(std::string_view text);

/// Immutable and safe from any thread. Returns the ids that `tokenizers` returns, in time n log n of the word's length.
class Bpe {
 public:
  /// Reads the settings in the "model" of a tokenizer.json and adds the tables' tokens to `vocabulary`. Throws
  /// ModelError.
  Bpe(const Json& model, const BpeTables& tables, Vocabulary& vocabulary, const Where& where);

  /// Memory for one encode call.
  struct Scratch {
    std::vector<TokenId> ids;
    std::vector<std::uint32_t> ranks, next, previous;
    std::vector<std::uint64_t> heap;
  };
  void encode(std::string_view word, std::vector<TokenId>& out, Scratch& scratch, TextWork& work) const;

  /// With ignore_merges, a word that is a token, other than these, becomes that token.
  void never_whole(std::string_view token) { words_.erase(token); }

 private:
  void add_tokens(const BpeTables& tables, const Json& model, Vocabulary& vocabulary, const Where& where);
  void add_merges(const BpeTables& tables, const Vocabulary& vocabulary, const Where& where);
  void to_symbols(std::string_view word, std::vector<TokenId>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch, TextWork& work) const;

  std::unordered_map<char32_t, TokenId, SeededHash> characters_;
  std::array<TokenId, 0x180> low_characters_{};  // those of the byte-level alphabet without a hash
  std::optional<std::array<TokenId, 256>> bytes_;
  std::optional<TokenId> unknown_;
  bool fuse_unknown_ = false;
  /// Tokens by the vocabulary's strings; filled only for ignore_merges.
  std::unordered_map<std::string_view, TokenId, SeededHash> words_;
  MergeTable merges_{0};
  std::vector<TokenId> merged_;  // [rank]
};

}  // namespace baton::text
