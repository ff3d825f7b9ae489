// SPDX-License-Identifier: Apache-2.0
// Alignments of sketched texts: by edit distance (engine/backend/alignment.h), and by index as in the paper (KVComm).
#pragma once

#include "engine/backend/alignment.h"
#include "engine/reuse/anchors/token_sketch.h"

namespace baton {

Alignment align(const SketchedText& text, const SketchedText& other);

/// Pairs token i with token i, as in the paper. The distance is the root mean square of the tokens' distances. Throws
/// std::invalid_argument when `other` is shorter than `text`.
Alignment align_by_index(const SketchedText& text, const SketchedText& other);

}  // namespace baton
