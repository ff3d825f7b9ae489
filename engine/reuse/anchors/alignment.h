// SPDX-License-Identifier: Apache-2.0
// Alignments of sketched texts: engine/backend/alignment.h, and the paper's own.
#pragma once

#include "engine/backend/alignment.h"
#include "engine/reuse/anchors/token_sketch.h"

namespace baton {

Alignment align(const SketchedText& text, const SketchedText& other);

/// Token i stands for token i, as in the paper; `other` is at least as long. The distance is the root mean square.
Alignment align_by_index(const SketchedText& text, const SketchedText& other);

}  // namespace baton
