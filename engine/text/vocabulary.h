// SPDX-License-Identifier: Apache-2.0
// Tokens and their ids: the model's vocabulary and the added tokens, checked once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/seeded_hash.h"
#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_json.h"

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

}  // namespace baton::text
