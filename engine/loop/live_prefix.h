// SPDX-License-Identifier: Apache-2.0
// LivePrefix: exact KV at the beginning of a prompt that is being prefilled or answered right now. Another prompt that
// begins with the same tokens follows it: it waits until the common beginning is computed, and copies the KV
// (docs/decisions/scheduling.md).
#pragma once

#include <cstdint>
#include <span>

#include "engine/loop/prefix_cache.h"
#include "engine/request.h"

namespace baton {

/// The minimum number of tokens for which a prompt waits for another one.
constexpr std::int32_t kMinFollowedTokens = 16;

/// Pointers are those of the sequence, so a value must not be kept beyond the current engine step.
struct LivePrefix {
  std::uint64_t id = 0;             // RequestId or EarlyId; they are drawn from one count
  const KvCache* cache = nullptr;   // keeps raw keys
  std::span<const TokenId> tokens;  // from position 0, at least `coming` of them
  std::int32_t ready = 0;           // positions [0, ready) of the cache hold exact KV
  std::int32_t coming = 0;          // positions [0, coming) will hold exact KV when the prefill is over

  /// Returns the number of first tokens that a prompt has in common with [0, coming), at most `max_tokens`.
  std::int32_t common(std::span<const TokenId> prompt, std::int32_t max_tokens) const;
};

/// The sequence that a prompt waits for, and the length that its exact KV must have. id 0: none.
struct Lead {
  std::uint64_t id = 0;
  std::int32_t length = 0;
};

/// Returns the live prefix with the longest beginning in common with the prompt, at most `max_tokens` tokens, if
/// waiting for it saves at least kMinFollowedTokens. `available`: tokens whose KV the prompt has or finds elsewhere
/// already.
Lead lead_of(std::span<const LivePrefix> live, std::span<const TokenId> prompt, std::int32_t max_tokens,
             std::int32_t available);

/// Returns the longest prefix of the prompt that is stored or live, at most `max_tokens` tokens. The last piece may be
/// a copy of a live cache, which is not stored. It is left out when the prefix has at most `known` tokens, whose KV the
/// caller has already, and when there is no memory for the copy.
PrefixCache::Match find_prefix(Backend& backend, PrefixCache& stored, std::span<const LivePrefix> live,
                               std::span<const TokenId> prompt, std::int32_t max_tokens, std::int32_t known = 0);

}  // namespace baton
