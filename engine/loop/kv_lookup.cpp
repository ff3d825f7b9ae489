// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/kv_lookup.h"

#include <algorithm>

namespace baton {

std::int32_t LivePrefix::common(std::span<const TokenId> prompt, std::int32_t max_tokens) const {
  const auto limit = static_cast<std::size_t>(std::max(0, std::min(coming, max_tokens)));
  const auto own = tokens.first(std::min(tokens.size(), limit));
  const auto other = prompt.first(std::min(prompt.size(), limit));
  return static_cast<std::int32_t>(std::mismatch(own.begin(), own.end(), other.begin(), other.end()).first -
                                   own.begin());
}

Lead lead_of(std::span<const LivePrefix> live, std::span<const TokenId> prompt, std::int32_t max_tokens,
             std::int32_t available) {
  Lead lead;
  for (const LivePrefix& one : live) {
    const std::int32_t common = one.common(prompt, max_tokens);
    available = std::max(available, std::min(common, one.ready));
    if (common > std::max(lead.length, one.ready)) lead = {one.id, common};
  }
  return lead.length >= available + kMinFollowedTokens ? lead : Lead{};
}

PrefixCache::Match find_prefix(Backend& backend, PrefixCache& stored, std::span<const LivePrefix> live,
                               std::span<const TokenId> prompt, std::int32_t max_tokens, std::int32_t known) {
  const LivePrefix* best = nullptr;
  std::int32_t length = 0;
  for (const LivePrefix& one : live) {
    const std::int32_t common = one.common(prompt, std::min(max_tokens, one.ready));
    if (common <= length) continue;
    best = &one;
    length = common;
  }
  PrefixCache::Match match = stored.find(prompt, max_tokens);
  if (length <= std::max(match.length, known)) return match;
  try {
    const auto rest =
        prompt.subspan(static_cast<std::size_t>(match.length)).first(static_cast<std::size_t>(length - match.length));
    auto copy = std::make_shared<Segment>(backend, *best->cache, match.length, length - match.length,
                                          std::vector<TokenId>(rest.begin(), rest.end()));
    match.pieces.push_back({std::move(copy), match.length, length - match.length});
    match.length = length;
  } catch (const BackendError&) {  // the prompt computes these tokens
  }
  return match;
}

std::int32_t known_beginning(const PromptKv& kv, std::span<const LivePrefix> live, std::span<const TokenId> prompt,
                             std::optional<std::int32_t> max_prefix) {
  std::int32_t length = std::max(kv.early, kv.context);
  if (!max_prefix) return length;
  length = std::max(length, std::min(kv.stored, *max_prefix));
  for (const LivePrefix& one : live) length = std::max(length, one.common(prompt, std::min(one.ready, *max_prefix)));
  return length;
}

Lead lead_of(const PromptKv& kv, std::span<const LivePrefix> live, std::span<const TokenId> prompt,
             std::int32_t max_prefix) {
  return lead_of(live, prompt, max_prefix, std::max({kv.stored, kv.early, kv.context}));
}

bool takes_text(const GenerationRequest& request, const ReuseDecision& decision, const PromptPart& part, int hops) {
  const ReuseOptions& reuse = request.reuse;
  if (request.run == 0 || !takes_running_texts(reuse, decision)) return false;
  if (part.slot.empty() || part.segment || part.imported_kv) return false;
  if (reuse.max_hops > 0 && hops >= reuse.max_hops) return false;
  return static_cast<std::int32_t>(part.tokens.size()) >= std::max(reuse.min_tokens, kMinFollowedTokens);
}

TextStep text_step(const GenerationRequest& request, const ReuseDecision& decision, const PromptPart& part,
                   const TextInPrompt& found, std::int32_t begin, std::int32_t known) {
  if (found.tentative || !takes_text(request, decision, part, found.hops) || begin < known) return TextStep::compute;
  return found.complete ? TextStep::take : TextStep::wait;
}

}  // namespace baton
