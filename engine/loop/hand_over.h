// SPDX-License-Identifier: Apache-2.0
// What a sequence leaves for later prompts: segments of its answer and of the texts in its prompt, prefixes, anchors.
// The functions are called on the engine's thread only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/kv/segment_store.h"
#include "engine/loop/anchors.h"
#include "engine/loop/prefix_cache.h"
#include "engine/loop/sequence.h"

namespace baton {

/// Stores what a complete answer leaves. A shortage of memory loses the reuse, never the answer.
void hand_over(Sequence& sequence, Backend& backend, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors);

/// A part of a running prompt that becomes a segment.
struct RunningText {
  Sequence* author = nullptr;  // null: there is none
  std::size_t part = 0;
  int hops = 0;  // of the text's KV
};

/// Returns the first running prompt of `run` in which `tokens` are a text that becomes a segment.
RunningText find_running_text(const std::deque<std::unique_ptr<Sequence>>& running, std::uint64_t run,
                              const std::vector<TokenId>& tokens);

/// Stores the KV of such a text now, while its author, whose prompt must be complete, is still running. Returns null
/// when memory is short.
SegmentHandle store_running_text(const RunningText& text, Backend& backend, SegmentStore& store);

}  // namespace baton
