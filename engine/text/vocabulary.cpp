// SPDX-License-Identifier: Apache-2.0
#include "engine/text/vocabulary.h"

#include <fmt/format.h>

namespace baton::text {

void Vocabulary::add(std::string_view token, TokenId id, const Where& where) {
  if (const auto known = this->id(token)) {
    if (*known == id) return;
    where.fail(fmt::format("the token {} has two ids, {} and {}", in_quotes(token), *known, id));
  }
  if (const std::string* other = this->token(id)) {
    where.fail(fmt::format("the id {} belongs to two tokens, {} and {}", id, in_quotes(*other), in_quotes(token)));
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= by_id_.size()) by_id_.resize(index + 1, nullptr);
  tokens_.emplace_back(token);
  by_id_[index] = &tokens_.back();
  ids_.emplace(tokens_.back(), id);
}

std::optional<TokenId> Vocabulary::id(std::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional(it->second);
}

const std::string* Vocabulary::token(TokenId id) const {
  return id < 0 || id >= size() ? nullptr : by_id_[static_cast<std::size_t>(id)];
}

TokenId id_limit(std::size_t tokens) {
  constexpr std::size_t kMaxTokens = 16'000'000;
  return static_cast<TokenId>(4 * std::min(tokens, kMaxTokens) + 4096);
}

}  // namespace baton::text
