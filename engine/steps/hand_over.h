// SPDX-License-Identifier: Apache-2.0
// The hand-over of a finished sequence's KV to later prompts.
#pragma once

#include "engine/steps/anchors.h"
#include "engine/steps/prefix_cache.h"
#include "engine/steps/sequence.h"

namespace baton {

/// Stores the parts that later prompts will hold as segments, and the exact KV as a prefix. Where memory is short,
/// segments are left out and later prompts are computed instead. Called on the engine's thread only.
void hand_over(Sequence& sequence, Backend& backend, SegmentStore& store, PrefixCache& prefixes, Anchors& anchors);

}  // namespace baton
