// What an answer that is complete leaves for later prompts.
#pragma once

#include "engine/anchors.h"
#include "engine/prefix_cache.h"
#include "engine/sequence.h"

namespace baton {

/// Makes segments of what later prompts will hold, and a prefix of what is exact. Without memory for them there are
/// none, and the later prompts are computed. The engine's thread only.
void hand_over(Sequence& sequence, Backend& backend, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors);

}  // namespace baton
