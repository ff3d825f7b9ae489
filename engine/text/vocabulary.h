// SPDX-License-Identifier: Apache-2.0
// Tokens and their ids: the model's vocabulary and the added tokens, checked once.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/tokenizer_json.h"

namespace baton::text {

class Vocabulary {
 public:
  /// Fails when the id is taken by another token, or the token has another id.
  void add(std::string_view token, TokenId id, const Where& where);

  std::optional<TokenId> id(std::string_view token) const;
  /// nullptr: there is no such token.
  const std::string* token(TokenId id) const;
  TokenId size() const { return static_cast<TokenId>(by_id_.size()); }  // highest id + 1

 private:
  std::size_t slot_of(std::string_view token) const;
  void grow();

  std::deque<std::string> tokens_;  // a deque: the pointers below stay valid while it grows
  std::vector<const std::string*> by_id_;
  // Ids by the hash of their tokens, open addressing; -1: empty. A map of nodes took 5 MB more for 152,000 tokens.
  std::vector<TokenId> slots_ = std::vector<TokenId>(2, -1);
};

/// Ids are bounded by the number of tokens that a file really has, so that a lying id cannot ask for much memory.
TokenId id_limit(std::size_t tokens);

}  // namespace baton::text
