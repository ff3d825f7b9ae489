// SPDX-License-Identifier: Apache-2.0
#include "engine/text/text_ids.h"

#include <utility>

namespace baton {
namespace {

constexpr std::size_t kMaxKeptText = std::size_t{1} << 20;    // bytes
constexpr std::size_t kMaxKeptTexts = std::size_t{32} << 20;  // bytes

TokenText tokenized(const Tokenizer& tokenizer, std::string_view text, TextIds::Kind kind, PieceStart start,
                    const std::stop_token& stop) {
  const SpecialTokens special = kind == TextIds::Kind::data ? SpecialTokens::as_text : SpecialTokens::recognise;
  return kind == TextIds::Kind::beginning ? tokenizer.encode_with_template(text, stop)
                                          : tokenizer.encode_piece(text, special, start, stop);
}

}  // namespace

TokenText TextIds::of(const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text, Kind kind,
                      PieceStart start, const std::stop_token& stop) {
  if (text.size() > kMaxKeptText) return tokenized(*tokenizer, text, kind, start, stop);
  Key key{tokenizer.get(), kind, start, std::string(text)};
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(key); found != kept_.end()) {
      uses_.splice(uses_.end(), uses_, found->second.use);
      return found->second.ids;
    }
  }
  TokenText ids = tokenized(*tokenizer, text, kind, start, stop);  // others need not wait for it
  const std::lock_guard lock(mutex_);
  const auto [at, added] = kept_.try_emplace(std::move(key));
  if (!added) return at->second.ids;
  try {
    uses_.push_back(&at->first);
  } catch (...) {
    kept_.erase(at);
    throw;
  }
  at->second = {tokenizer, std::move(ids), std::prev(uses_.end())};
  bytes_ += text.size();
  TokenText result = at->second.ids;
  while (bytes_ > kMaxKeptTexts) {
    const auto oldest = kept_.find(*uses_.front());
    bytes_ -= std::get<std::string>(oldest->first).size();
    uses_.pop_front();
    kept_.erase(oldest);
  }
  return result;
}

TokenText ids_of_text(TextIds* texts, const std::shared_ptr<const Tokenizer>& tokenizer, std::string_view text,
                      TextIds::Kind kind, PieceStart start, const std::stop_token& stop) {
  return texts != nullptr ? texts->of(tokenizer, text, kind, start, stop)
                          : tokenized(*tokenizer, text, kind, start, stop);
}

}  // namespace baton
