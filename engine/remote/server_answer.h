// SPDX-License-Identifier: Apache-2.0
// ServerAnswer: the text and the token ids of an answer, piece by piece.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/remote/server_api.h"
#include "engine/text/templates.h"
#include "engine/text/tokenizer.h"

namespace baton {

class ServerAnswer {
 public:
  /// `on_plain` is told of each token that has a text of its own; may be null. `stops`: the texts before which the
  /// answer ends, where the server sends them with it.
  ServerAnswer(const Tokenizer& tokenizer, std::function<void(TokenId)> on_plain,
               const std::vector<std::string>& stops = {})
      : tokenizer_(&tokenizer), on_plain_(std::move(on_plain)), stops_(stops) {}

  /// Returns the text that is new and certain to precede any stop text. A server may send a token's id before its text
  /// (which may be the beginning of a stop text), and leaves out ids of tokens that end inside of a character. Ids that
  /// it leaves out are those of the text, tokenized anew. Throws what the tokenizer throws, and ModelError for an
  /// id beyond the vocabulary and for an answer so far that has become shorter.
  std::string add(ServerPiece piece);
  /// Nothing follows: the text that was held back is a part of the answer, or the ids of a stop text are none. Throws
  /// what the tokenizer throws.
  void end();

  const std::string& text() const { return text_; }
  /// The ids of `text()`; before the end of the answer, with those of a text that is held back.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Tokens that the server has counted.
  std::int64_t generated() const { return generated_; }

 private:
  void keep_new(ServerPiece& piece) const;

  const Tokenizer* tokenizer_;
  std::function<void(TokenId)> on_plain_;
  StopStrings stops_;
  std::string text_;
  std::vector<TokenId> tokens_;
  std::vector<std::size_t> ends_;  // for each token: bytes of the answer up to its text's end
  std::size_t bytes_ = 0;          // bytes of the answer, with what is held back
  std::size_t ids_ = 0;            // that the server has given
  std::vector<TokenId> waiting_;   // ids whose text has not come
  bool gap_ = false;               // an id is missing among them
  std::int64_t generated_ = 0;
};

// The text side of a server that takes messages and neither token ids nor a chat template: ids are the bytes of UTF-8,
// and one id for the beginning of each role's message, which no text becomes. So a value cannot write a role marker
// here either, and whatever builds prompts of ids needs to know nothing of such servers.

/// A tokenizer and a chat template of this kind.
ModelText message_text();

/// The messages that a prompt by message_text() consists of, without the answer that is to be written. What stands
/// before the first message is of the user.
std::vector<ChatMessage> messages_of(const std::vector<TokenId>& prompt);

}  // namespace baton
