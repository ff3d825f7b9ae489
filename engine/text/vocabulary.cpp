// SPDX-License-Identifier: Apache-2.0
#include "engine/text/vocabulary.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

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
  if (2 * tokens_.size() > slots_.size()) grow();
  slots_[slot_of(token)] = id;
}

/// Returns the slot that holds the token, or the empty one that would.
std::size_t Vocabulary::slot_of(std::string_view token) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = std::hash<std::string_view>()(token) & mask;
  while (slots_[slot] >= 0 && *by_id_[static_cast<std::size_t>(slots_[slot])] != token) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  const std::vector<TokenId> ids = std::exchange(slots_, std::vector<TokenId>(2 * slots_.size(), -1));
  for (const TokenId id : ids) {
    if (id >= 0) slots_[slot_of(*by_id_[static_cast<std::size_t>(id)])] = id;
  }
}

std::optional<TokenId> Vocabulary::id(std::string_view token) const {
  const TokenId id = slots_[slot_of(token)];
  return id < 0 ? std::nullopt : std::optional(id);
}

const std::string* Vocabulary::token(TokenId id) const {
  return id < 0 || id >= size() ? nullptr : by_id_[static_cast<std::size_t>(id)];
}

TokenId id_limit(std::size_t tokens) {
  constexpr std::size_t kMaxTokens = 16'000'000;
  return static_cast<TokenId>(4 * std::min(tokens, kMaxTokens) + 4096);
}

}  // namespace baton::text
