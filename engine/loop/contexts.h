// SPDX-License-Identifier: Apache-2.0
// What a prompt takes of a kept context (engine/kv/segment_handle.h), and what it leaves as one. The engine's thread
// only.
#pragma once

#include "engine/kv/segment_handle.h"
#include "engine/loop/sequence.h"

namespace baton {

/// Returns the number of first tokens of the prompt that the context holds; 0: it is of another engine.
std::int32_t common_length(const KeptContext& context, std::span<const TokenId> prompt, const SegmentStore& store);

/// Returns the number of first tokens of the prompt whose KV the request's context has and the request may use. Whether
/// the KV was evicted is not looked at.
std::int32_t context_length(const GenerationRequest& request, const ReuseDecision& decision,
                            std::span<const TokenId> prompt, const SegmentStore& store);

/// Keeps the KV of a complete sequence, whose prefix has been added to `prefixes`. KV that is there already is shared.
/// Returns null when the budget has no room. Throws BackendError.
ContextHandle keep_context(const Sequence& sequence, Backend& backend, SegmentStore& store,
                           const PrefixCache& prefixes);

/// LocalEngine::context_bytes, and the context of such bytes: `context` with its piece. Null: the budget has no room.
std::vector<std::byte> bytes_of(const KeptContext& context, const SegmentStore& store);
ContextHandle with_bytes(const std::shared_ptr<KeptContext>& context, const KvLayout& layout,
                         std::span<const std::byte> bytes, Backend& backend, SegmentStore& store);

}  // namespace baton
