#include "engine/prefix_cache.h"

#include <algorithm>

namespace baton {
namespace {

constexpr std::size_t kMostEntries = 64;
constexpr std::int32_t kWorthKeeping = 16;  // tokens more than what there is already

std::int32_t common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto n = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
  return static_cast<std::int32_t>(std::mismatch(a.begin(), a.begin() + n, b.begin()).first - a.begin());
}

}  // namespace

PrefixCache::Match PrefixCache::find(std::span<const TokenId> prompt, std::int32_t longest) {
  auto best = entries_.end();
  std::int32_t length = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const std::int32_t shared = std::min(common(entry->tokens, prompt), longest);
    if (shared <= length) continue;
    best = entry;
    length = shared;
  }
  if (best == entries_.end()) return {};
  std::shared_ptr<const Segment> segment = store_.read(best->handle);
  if (!segment) {
    entries_.erase(best);
    return find(prompt, longest);
  }
  entries_.splice(entries_.begin(), entries_, best);
  return {std::move(segment), length};
}

void PrefixCache::add(Backend& backend, const KvCache& cache, std::span<const TokenId> tokens) {
  const auto n = static_cast<std::int32_t>(tokens.size());
  for (const Entry& entry : entries_) {
    if (common(entry.tokens, tokens) + kWorthKeeping > n) return;
  }
  SegmentHandle handle = store_.add(
      std::make_shared<Segment>(backend, cache, 0, n, std::vector<TokenId>(tokens.begin(), tokens.end())), 0);
  if (!handle) return;
  std::erase_if(entries_, [&](const Entry& entry) {
    return common(entry.tokens, tokens) == static_cast<std::int32_t>(entry.tokens.size());
  });
  entries_.push_front({{tokens.begin(), tokens.end()}, std::move(handle)});
  if (entries_.size() > kMostEntries) entries_.pop_back();
}

}  // namespace baton
