// SPDX-License-Identifier: Apache-2.0
// ServerAnswer: the text and the token ids of an answer, piece by piece.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/remote/server_api.h"

namespace baton {

class ServerAnswer {
 public:
  /// `on_plain` is told of each token that has a text of its own; may be null.
  ServerAnswer(const Tokenizer& tokenizer, std::function<void(TokenId)> on_plain)
      : tokenizer_(&tokenizer), on_plain_(std::move(on_plain)) {}

  /// A server may send a token's id before its text (which may be the beginning of a stop text), and leaves out ids of
  /// tokens that end inside of a character. Ids that it leaves out are those of the text, tokenized anew. Throws what
  /// the tokenizer throws.
  void add(const ServerPiece& piece);

  const std::string& text() const { return text_; }
  /// The ids of `text()`.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Tokens that the server has counted.
  std::int64_t generated() const { return generated_; }

 private:
  const Tokenizer* tokenizer_;
  std::function<void(TokenId)> on_plain_;
  std::string text_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> waiting_;  // ids whose text has not come
  bool gap_ = false;              // an id is missing among them
  std::int64_t generated_ = 0;
};

}  // namespace baton
