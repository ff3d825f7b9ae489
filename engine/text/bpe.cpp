// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "engine/base/utf8.h"

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

namespace {

constexpr std::uint32_t kEnd = std::numeric_limits<std::uint32_t>::max();
constexpr TokenId kMissing = -1;
// Up to this number of symbols a scan for the lowest rank is faster than a heap (ordinary words have 2 to 12 symbols).
constexpr std::size_t kShortWord = 40;

}  // namespace

MergeTable::MergeTable(std::size_t merges) : slots_(merges + merges / 2 + 2) {}

std::size_t MergeTable::slot_of(TokenId left, TokenId right) const {
  const std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  std::size_t slot = (hash_(key) >> 32) * slots_.size() >> 32;
  const auto other = [&](const Slot& at) { return at.rank != kNoMerge && (at.left != left || at.right != right); };
  while (other(slots_[slot])) slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  return slot;
}

void MergeTable::set(TokenId left, TokenId right, std::uint32_t rank) {
  slots_[slot_of(left, right)] = {left, right, rank};
}

void Bpe::to_symbols(std::string_view word, std::vector<TokenId>& symbols) const {
  TokenId pending_unknown = kMissing;
  const auto flush = [&] {
    if (pending_unknown != kMissing) symbols.push_back(pending_unknown);
    pending_unknown = kMissing;
  };
  for (std::size_t at = 0; at < word.size();) {
    const auto [c, bytes] = utf8::at(word, at);
    TokenId id = kMissing;
    if (c < low_characters_.size()) {
      id = low_characters_[c];
    } else if (const auto it = characters_.find(c); it != characters_.end()) {
      id = it->second;
    }
    if (id != kMissing) {
      flush();
      symbols.push_back(id);
    } else if (bytes_) {
      // `tokenizers` does not flush a pending unknown token here. All 256 bytes exist, so none is ever pending.
      for (std::size_t i = 0; i < bytes; ++i) symbols.push_back((*bytes_)[static_cast<unsigned char>(word[at + i])]);
    } else if (unknown_) {
      if (!fuse_unknown_) flush();
      pending_unknown = *unknown_;
    }  // else the character is dropped, as `tokenizers` does
    at += bytes;
  }
  flush();
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& out, Scratch& scratch, TextWork& work) const {
  work.spend(2 + 2 * word.size());
  if (!words_.empty()) {
    if (const auto it = words_.find(word); it != words_.end()) {
      out.push_back(it->second);
      return;
    }
  }
  scratch.ids.clear();
  to_symbols(word, scratch.ids);
  if (scratch.ids.size() >= kEnd) throw ModelError("the text has too many characters; expected fewer than 2^32");
  work.check_symbols(scratch.ids.size());
  scratch.ids.size() <= kShortWord ? merge_short(scratch) : merge_long(scratch, work);
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::merge_short(Scratch& scratch) const {
  auto& ids = scratch.ids;
  auto& ranks = scratch.ranks;  // rank of the pair that begins at the symbol
  if (ids.size() < 2) return;
  ranks.assign(ids.size() - 1, kNoMerge);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) ranks[i] = merges_.rank(ids[i], ids[i + 1]);
  while (!ranks.empty()) {
    const auto best = std::min_element(ranks.begin(), ranks.end());
    if (*best == kNoMerge) return;
    const auto i = static_cast<std::size_t>(best - ranks.begin());
    ids[i] = merged_[*best];
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    ranks.erase(best);
    if (i < ranks.size()) ranks[i] = merges_.rank(ids[i], ids[i + 1]);
    if (i > 0) ranks[i - 1] = merges_.rank(ids[i - 1], ids[i]);
  }
}

void Bpe::merge_long(Scratch& scratch, TextWork& work) const {
  auto& [ids, ranks, next, previous, heap] = scratch;
  const auto count = static_cast<std::uint32_t>(ids.size());
  ranks.assign(count, kNoMerge);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  heap.reserve(ids.size() + ids.size() / 2);
  const auto set_rank = [&, &rank_of = ranks, &pending = heap](std::uint32_t at, std::uint32_t value) {
    if (std::exchange(rank_of[at], value) == value || value == kNoMerge) return;
    if (pending.size() == pending.capacity()) {  // at least a third is of pairs that are no more
      std::erase_if(pending, [&](std::uint64_t one) { return rank_of[static_cast<std::uint32_t>(one)] != one >> 32; });
      std::make_heap(pending.begin(), pending.end(), std::greater<>());
    }
    pending.push_back(static_cast<std::uint64_t>(value) << 32 | at);  // the lowest rank first, then the leftmost
    std::push_heap(pending.begin(), pending.end(), std::greater<>());
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1 < count ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
    work.spend(4);
    if (i + 1 < count) set_rank(i, merges_.rank(ids[i], ids[i + 1]));
  }
  while (!heap.empty()) {
    work.spend(20);
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto found = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto at = static_cast<std::uint32_t>(heap.back());
    heap.pop_back();
    if (ranks[at] != found) continue;  // one of the two symbols has been merged since
    const std::uint32_t right = next[at];
    ids[at] = merged_[found];
    ids[right] = kMissing;
    ranks[at] = ranks[right] = kNoMerge;
    next[at] = next[right];
    if (next[at] != kEnd) previous[next[at]] = at;
    set_rank(at, next[at] == kEnd ? kNoMerge : merges_.rank(ids[at], ids[next[at]]));
    if (previous[at] != kEnd) set_rank(previous[at], merges_.rank(ids[previous[at]], ids[at]));
  }
  std::erase(ids, kMissing);
}

// Reads the "model" of a tokenizer.json.

namespace {

/// "a b" or ["a", "b"].
Merge merge_of(const Json& value, const Where& where) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get_ref<const std::string&>(), value[1].get_ref<const std::string&>()};
  if (value.is_string()) {
    if (const auto merge = parse_merge(value.get_ref<const std::string&>())) return *merge;
  }
  where.fail("a merge must be \"a b\" or [\"a\", \"b\"]");
}

void reject_affix(const Json& model, const char* key, const Where& where) {
  if (!optional_string(model, key, where).value_or("").empty()) where.fail(fmt::format("'{}' is not supported", key));
}

}  // namespace

std::optional<Merge> parse_merge(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return std::nullopt;
  return Merge(text.substr(0, space), text.substr(space + 1));
}

BpeTables tables_of(const Json& model, const Where& where) {
  BpeTables tables;
  const Json& tokens = member(model, "vocab", where);
  const Where in_vocabulary = where.in("vocab");
  if (!tokens.is_object()) in_vocabulary.fail("expected an object of tokens and their ids");
  tables.tokens = [&tokens, in_vocabulary](const BpeTables::TakeToken& take) {
    const TokenId limit = id_limit(tokens.size());
    for (const auto& [token, id] : tokens.get_ref<const Json::object_t&>())
      take(token, index_of(id, limit, in_vocabulary.in(in_quotes(token))));
  };
  const Json& merges = array_member(model, "merges", where);
  tables.merges = [&merges, inside = where.in("merges")](const Vocabulary&) {
    return BpeTables::Merges{merges.size(),
                             [&merges, inside](std::size_t rank) { return merge_of(merges[rank], inside.in(rank)); }};
  };
  return tables;
}

Bpe::Bpe(const Json& model, const BpeTables& tables, Vocabulary& vocabulary, const Where& where) {
  // Files of the earliest versions have no type.
  const std::string type = optional_string(model, "type", where).value_or("BPE");
  if (type != "BPE") where.fail(fmt::format("the model type {} is not supported", in_quotes(type)));
  reject_affix(model, "continuing_subword_prefix", where);
  reject_affix(model, "end_of_word_suffix", where);
  if (const Json* dropout = find(model, "dropout", where)) {
    if (!dropout->is_number() || dropout->get<double>() != 0.0) where.fail("'dropout' is not supported");
  }
  fuse_unknown_ = bool_member(model, "fuse_unk", false, where);
  add_tokens(tables, model, vocabulary, where);
  add_merges(tables, vocabulary, where);
}

void Bpe::add_tokens(const BpeTables& tables, const Json& model, Vocabulary& vocabulary, const Where& where) {
  const Where inside = where.in("vocab");
  low_characters_.fill(-1);
  tables.tokens([&](std::string_view token, TokenId id) { vocabulary.add(token, id, inside); });
  if (vocabulary.size() == 0) inside.fail("expected an object of tokens and their ids");
  const bool ignore_merges = bool_member(model, "ignore_merges", false, where);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    const auto token = vocabulary.token(id);
    if (!token || token->empty()) continue;
    if (ignore_merges) words_.emplace(*token, id);
    const auto [c, bytes] = utf8::at(*token, 0);
    if (bytes != token->size()) continue;
    if (c < low_characters_.size()) {
      low_characters_[c] = id;
    } else {
      characters_.emplace(c, id);
    }
  }
  if (bool_member(model, "byte_fallback", false, where)) {
    bytes_.emplace();
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto id = vocabulary.id(fmt::format("<0x{:02X}>", byte));
      if (!id) where.fail(fmt::format("byte_fallback needs the token <0x{:02X}>, which is missing", byte));
      (*bytes_)[byte] = *id;
    }
  }
  if (const auto token = optional_string(model, "unk_token", where)) {
    unknown_ = vocabulary.id(*token);
    if (!unknown_) where.fail(fmt::format("the unk_token {} is not in the vocabulary", in_quotes(*token)));
  }
}

void Bpe::add_merges(const BpeTables& tables, const Vocabulary& vocabulary, const Where& where) {
  const BpeTables::Merges merges = tables.merges(vocabulary);
  merges_ = MergeTable(merges.size);
  merged_.reserve(merges.size);
  std::string joined;
  for (std::uint32_t rank = 0; rank < merges.size; ++rank) {
    const auto [left, right] = merges.at(rank);
    const auto id_of = [&](std::string_view token) {
      const auto id = vocabulary.id(token);
      if (!id) where.in("merges").in(rank).fail(fmt::format("the token {} is not in the vocabulary", in_quotes(token)));
      return *id;
    };
    joined = left;
    joined += right;
    merged_.push_back(id_of(joined));
    merges_.set(id_of(left), id_of(right), rank);
  }
}

}  // namespace baton::text
