// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_answer.h"

#include <utility>

namespace baton {

void ServerAnswer::add(const ServerPiece& piece) {
  const auto given = static_cast<std::int64_t>(piece.ids.size());
  if (piece.tokens >= 0) {
    gap_ = gap_ || (piece.tokens > generated_ + given && !piece.last);
    generated_ = piece.tokens;
  } else {
    generated_ += given;
  }
  waiting_.insert(waiting_.end(), piece.ids.begin(), piece.ids.end());
  if (piece.text.empty()) return;
  std::vector<TokenId> ids = std::exchange(waiting_, {});
  if (std::exchange(gap_, false) || ids.empty()) {
    ids = tokenizer_->encode(piece.text, SpecialTokens::as_text);
  } else if (ids.size() == 1 && on_plain_) {
    on_plain_(ids.front());
  }
  text_ += piece.text;
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
}

}  // namespace baton
