// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/prefix_cache.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::size_t kMaxEntries = 512;

}  // namespace

/// An entry's tokens follow those of its parent up to position `begin`, where the entry branches off.
struct PrefixCache::Entry {
  Entry* parent = nullptr;
  std::int32_t begin = 0;
  std::vector<TokenId> tokens;
  SegmentHandle handle;
  std::uint64_t last_use = 0;
  std::vector<std::unique_ptr<Entry>> children;

  std::int32_t common(std::span<const TokenId> prompt) const {
    const auto rest = prompt.subspan(static_cast<std::size_t>(begin));
    const auto n = static_cast<std::ptrdiff_t>(std::min(tokens.size(), rest.size()));
    return static_cast<std::int32_t>(std::mismatch(tokens.begin(), tokens.begin() + n, rest.begin()).first -
                                     tokens.begin());
  }
  std::size_t size() const {
    std::size_t count = 1;
    for (const auto& child : children) count += child->size();
    return count;
  }
};

/// The entries along a prompt, and how far the prompt matches them.
struct PrefixCache::Walk {
  std::vector<Entry*> entries;
  std::int32_t length = 0;
};

PrefixCache::PrefixCache(SegmentStore& store) : store_(store), root_(std::make_unique<Entry>()) {}
PrefixCache::~PrefixCache() = default;

PrefixCache::Walk PrefixCache::walk(std::span<const TokenId> prompt) const {
  Walk walk;
  for (Entry* at = root_.get(); at != nullptr;) {
    walk.length = at->begin + at->common(prompt);
    if (at != root_.get()) walk.entries.push_back(at);
    Entry* next = nullptr;
    for (const auto& child : at->children) {
      if (child->begin == walk.length && child->common(prompt) > 0) next = child.get();
    }
    at = next;
  }
  return walk;
}

PrefixCache::Match PrefixCache::find(std::span<const TokenId> prompt, std::int32_t max_tokens) {
  const Walk walk = living(this->walk(prompt));
  Match match;
  for (std::size_t i = 0; i < walk.entries.size() && walk.entries[i]->begin < max_tokens; ++i) {
    const Entry& entry = *walk.entries[i];
    const std::int32_t end = i + 1 < walk.entries.size() ? walk.entries[i + 1]->begin : walk.length;
    std::shared_ptr<const Segment> segment = store_.read(entry.handle);
    if (!segment) break;  // no memory to upload the segment
    match.length = std::min(end, max_tokens);
    match.pieces.push_back({std::move(segment), entry.begin, match.length - entry.begin});
  }
  use(walk, match.pieces.size());
  return match;
}

std::int32_t PrefixCache::length(std::span<const TokenId> prompt) { return living(walk(prompt)).length; }

PrefixCache::Match PrefixCache::read(const KeptContext& context, std::int32_t length) {
  Match match;
  for (const KeptContext::Piece& piece : context.pieces) {
    if (piece.begin >= length) break;
    std::shared_ptr<const Segment> segment = store_.read(piece.segment);
    if (!segment) break;
    match.length = std::min(piece.begin + piece.count, length);
    match.pieces.push_back({std::move(segment), piece.begin, match.length - piece.begin});
  }
  return match;
}

std::vector<KeptContext::Piece> PrefixCache::pieces(std::span<const TokenId> prompt) const {
  const Walk walk = this->walk(prompt);
  std::vector<KeptContext::Piece> pieces;
  for (std::size_t i = 0; i < walk.entries.size(); ++i) {
    const std::int32_t begin = walk.entries[i]->begin;
    const std::int32_t end = i + 1 < walk.entries.size() ? walk.entries[i + 1]->begin : walk.length;
    pieces.push_back({walk.entries[i]->handle, begin, end - begin});
  }
  return pieces;
}

/// Returns the beginning of the walk up to the first evicted segment, and drops the evicted entry with its branches.
PrefixCache::Walk PrefixCache::living(Walk walk) {
  for (std::size_t i = 0; i < walk.entries.size(); ++i) {
    if (store_.peek(walk.entries[i]->handle)) continue;
    walk.length = walk.entries[i]->begin;
    drop(*walk.entries[i]);
    walk.entries.resize(i);
  }
  return walk;
}

/// Counts a use of the first entries, the deepest first, so that the store evicts an entry before its parents.
void PrefixCache::use(const Walk& walk, std::size_t count) {
  ++clock_;
  for (std::size_t i = count; i-- > 0;) {
    walk.entries[i]->last_use = clock_;
    store_.use(walk.entries[i]->handle);
  }
}

void PrefixCache::add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens, std::int32_t least) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  const Walk walk = living(this->walk(tokens));
  if (walk.length + least > n) return;
  const auto rest = tokens.subspan(static_cast<std::size_t>(walk.length));
  SegmentHandle handle = store_.add(std::make_shared<Segment>(backend, cache, walk.length, n - walk.length,
                                                              std::vector<TokenId>(rest.begin(), rest.end())),
                                    0);
  use(walk, walk.entries.size());
  if (!handle || (!walk.entries.empty() && !store_.peek(walk.entries.back()->handle))) return;
  auto entry = std::make_unique<Entry>();
  entry->parent = walk.entries.empty() ? root_.get() : walk.entries.back();
  entry->begin = walk.length;
  entry->tokens.assign(rest.begin(), rest.end());
  entry->handle = std::move(handle);
  entry->last_use = clock_;
  entry->parent->children.push_back(std::move(entry));
  if (++entries_ > kMaxEntries) drop_oldest();
}

/// Drops an entry and all its branches.
void PrefixCache::drop(const Entry& entry) {
  entries_ -= entry.size();
  std::erase_if(entry.parent->children, [&](const auto& child) { return child.get() == &entry; });
}

/// Drops the least recently used entry without branches.
void PrefixCache::drop_oldest() {
  const Entry* oldest = nullptr;
  std::vector<const Entry*> left = {root_.get()};
  while (!left.empty()) {
    const Entry* at = left.back();
    left.pop_back();
    for (const auto& child : at->children) left.push_back(child.get());
    if (at->children.empty() && at != root_.get() && (oldest == nullptr || at->last_use < oldest->last_use))
      oldest = at;
  }
  if (oldest != nullptr) drop(*oldest);
}

void PrefixCache::clear() {
  root_->children.clear();
  entries_ = 0;
}

}  // namespace baton
