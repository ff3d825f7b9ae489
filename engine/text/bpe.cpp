// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "engine/base/utf8.h"

namespace baton::text {
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

}  // namespace baton::text
