// SPDX-License-Identifier: Apache-2.0
#include "engine/remote/server_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/errors.h"

namespace baton {

/// Of an answer so far, what earlier events did not hold.
void ServerAnswer::keep_new(ServerPiece& piece) const {
  if (!piece.whole) return;
  if (piece.text.size() < bytes_ || piece.ids.size() < ids_)
    throw ModelError(fmt::format("its answer has become shorter: {} bytes and {} ids, expected at least {} and {}",
                                 piece.text.size(), piece.ids.size(), bytes_, ids_));
  piece.text.erase(0, bytes_);
  piece.ids.erase(piece.ids.begin(), piece.ids.begin() + static_cast<std::ptrdiff_t>(ids_));
}

std::string ServerAnswer::add(ServerPiece piece) {
  keep_new(piece);
  for (const TokenId id : piece.ids) {
    if (id < 0 || id >= tokenizer_->size())
      throw ModelError(fmt::format("its answer holds the id {}; expected one below {}", id, tokenizer_->size()));
  }
  const auto given = static_cast<std::int64_t>(piece.ids.size());
  ids_ += piece.ids.size();
  if (piece.tokens >= 0) {
    gap_ = gap_ || (piece.tokens > generated_ + given && !piece.last);
    generated_ = piece.tokens;
  } else {
    generated_ += given;
  }
  waiting_.insert(waiting_.end(), piece.ids.begin(), piece.ids.end());
  if (piece.text.empty()) return {};
  std::vector<TokenId> ids = std::exchange(waiting_, {});
  if (piece.reason)  // with the end's, which has no text
    while (!ids.empty() && tokenizer_->is_special(ids.back())) ids.pop_back();
  if (std::exchange(gap_, false) || ids.empty()) {
    ids = tokenizer_->encode(piece.text, SpecialTokens::as_text);
  } else if (ids.size() == 1 && on_plain_) {
    on_plain_(ids.front());
  }
  bytes_ += piece.text.size();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  ends_.resize(tokens_.size(), bytes_);
  std::string certain = stops_.push(piece.text);
  text_ += certain;
  return certain;
}

void ServerAnswer::end() {
  text_ += stops_.finish();
  if (!stops_.found()) return;
  const auto kept = std::upper_bound(ends_.begin(), ends_.end(), text_.size()) - ends_.begin();
  tokens_.resize(static_cast<std::size_t>(kept));
  const std::size_t covered = kept == 0 ? 0 : ends_[static_cast<std::size_t>(kept) - 1];
  if (covered == text_.size()) return;
  const std::vector<TokenId> rest = tokenizer_->encode(text_.substr(covered), SpecialTokens::as_text);
  tokens_.insert(tokens_.end(), rest.begin(), rest.end());
}

}  // namespace baton
