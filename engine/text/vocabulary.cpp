// SPDX-License-Identifier: Apache-2.0
#include "engine/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::text {

void Vocabulary::add(std::string_view token, TokenId id, const Where& where) {
  if (const auto known = this->id(token)) {
    if (*known == id) return;
    where.fail(fmt::format("the token {} has two ids, {} and {}", in_quotes(token), *known, id));
  }
  if (const auto other = this->token(id)) {
    where.fail(fmt::format("the id {} belongs to two tokens, {} and {}", id, in_quotes(*other), in_quotes(token)));
  }
  const auto index = static_cast<std::size_t>(id);
  if (index >= by_id_.size()) by_id_.resize(index + 1);
  by_id_[index] = kept(token);
  if (2 * ++count_ > slots_.size()) grow();
  slots_[slot_of(token)] = id;
}

/// Copies the text. A block never grows beyond what was reserved for it, so that views of texts stay valid.
Vocabulary::Place Vocabulary::kept(std::string_view token) {
  constexpr std::size_t kBlock = 1 << 16;
  const auto add_block = [&](std::size_t bytes) {
    blocks_.emplace_back().reserve(bytes);
    return static_cast<std::uint32_t>(blocks_.size() - 1);
  };
  if (token.size() >= kLong) {
    const std::uint32_t block = add_block(token.size());
    blocks_[block] = token;
    return {block, 0, kLong};
  }
  if (!open_ || blocks_[*open_].size() + token.size() > kBlock) open_ = add_block(kBlock);
  std::string& block = blocks_[*open_];
  const auto begin = static_cast<std::uint16_t>(block.size());
  block += token;
  return {*open_, begin, static_cast<std::uint16_t>(token.size())};
}

std::string_view Vocabulary::text_at(Place place) const {
  const std::string_view block = blocks_[place.block];
  return place.size == kLong ? block : block.substr(place.begin, place.size);
}

/// Returns the slot that holds the token, or the empty one that would.
std::size_t Vocabulary::slot_of(std::string_view token) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_(token) & mask;
  while (slots_[slot] >= 0 && text_at(by_id_[static_cast<std::size_t>(slots_[slot])]) != token)
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::grow() {
  const std::vector<TokenId> ids = std::exchange(slots_, std::vector<TokenId>(2 * slots_.size(), -1));
  for (const TokenId id : ids) {
    if (id >= 0) slots_[slot_of(text_at(by_id_[static_cast<std::size_t>(id)]))] = id;
  }
}

std::optional<TokenId> Vocabulary::id(std::string_view token) const {
  const TokenId id = slots_[slot_of(token)];
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Vocabulary::token(TokenId id) const {
  if (id < 0 || id >= size()) return std::nullopt;
  const Place place = by_id_[static_cast<std::size_t>(id)];
  return place.size == kNone ? std::nullopt : std::optional(text_at(place));
}

TokenId id_limit(std::size_t tokens) {
  constexpr std::size_t kMaxTokens = 16'000'000;
  return static_cast<TokenId>(4 * std::min(tokens, kMaxTokens) + 4096);
}

}  // namespace baton::text
