// SPDX-License-Identifier: Apache-2.0
// What an answer that is complete leaves for later prompts.
#pragma once

#include "engine/steps/anchors.h"
#include "engine/steps/prefix_cache.h"
#include "engine/steps/sequence.h"

namespace baton {

/// Makes segments of what later prompts will hold, and a prefix of what is exact. Without memory for them there are
/// none, and the later prompts are computed. The engine's thread only.
void hand_over(Sequence& sequence, Backend& backend, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors);

}  // namespace baton
