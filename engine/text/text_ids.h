// SPDX-License-Identifier: Apache-2.0
// TextIds: the token ids of texts. A text is tokenized once for each tokenizer, and its ids are shared.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/base/token_text.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The texts of a session, or of a run that belongs to none. Threads: any. Texts of more than 1 MiB are not kept; when
/// more than 32 MiB of texts are kept, those that were not used for longest are released.
class TextIds {
 public:
  /// The kinds of text, which a tokenizer treats differently.
  enum class Kind : std::uint8_t {
    authored,   // special tokens in it are recognised
    data,       // special tokens in it are text
    beginning,  // authored, and with the tokens that the tokenizer puts before a text
  };

  /// The ids of a text, or of a piece of one with this start, which must be default for the kind beginning. Throws what
  /// the tokenizer throws.
  TokenText of(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text, Kind kind,
               PieceStart start = {}, const std::stop_token& stop = {});

 private:
  using Key = std::tuple<const Tokenizer*, Kind, PieceStart, std::string>;
  struct Kept {
    std::shared_ptr<const Tokenizer> tokenizer;  // so that its address stays its own
    TokenText ids;
    std::list<const Key*>::iterator use;
  };

  std::mutex mutex_;
  std::map<Key, Kept> kept_;
  std::list<const Key*> uses_;  // the least recently used first
  std::size_t bytes_ = 0;       // bytes of the kept texts
};

/// The ids from `texts`, or made anew if it is null.
TokenText ids_of_text(TextIds* texts, const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text,
                      TextIds::Kind kind, PieceStart start = {}, const std::stop_token& stop = {});

/// The start of the next piece of a text, whose pieces are followed one by one.
class NextPiece {
 public:
  /// `start`: of the first piece.
  explicit NextPiece(const Tokenizer& tokenizer, PieceStart start = {}) : tokenizer_(&tokenizer), start_(start) {}

  PieceStart start() const { return start_; }
  /// A piece has these ids; none: it is empty.
  void follow(const TokenText& ids) {
    if (!ids.empty()) start_ = tokenizer_->start_after(ids.back());
  }
  /// A piece is not known yet, and taken for text.
  void follow_unknown() { start_ = tokenizer_->start_inside(); }

 private:
  const Tokenizer* tokenizer_;
  PieceStart start_;
};

}  // namespace baton
