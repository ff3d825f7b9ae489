// SPDX-License-Identifier: Apache-2.0
// cacheblend: all tokens run through layer 0, and their values are compared in layer 1. The tokens whose values differ
// most there are recomputed in all layers from there (CacheBlend, arXiv 2405.16444). As in the authors' program
// (github.com/YaoJiayi/CacheBlend), the difference is the squared norm over all heads, the choice is made once, in
// layer 1, and over all reused tokens of the prompt, and the number is rounded down. The paper's gradual filtering,
// which lowers the number from layer to layer, is in neither program.
#pragma once

#include "engine/reuse/decision.h"
#include "engine/reuse/schedule.h"

namespace baton {

struct CacheblendOptions {
  enum class Score : std::uint8_t {
    values,  // by the squared distance of values, over all segments of the prompt (CacheBlend)
    cosine,  // ours: by the cosine of values, each segment for itself
  };
  double share = 0.15;  // the fraction of the reused tokens to recompute
  Score score = Score::values;
  double reuse = 0.0;  // above 0: the fraction of the segments' (token, layer) entries that stays reused, instead
};

const Method& cacheblend_method();

}  // namespace baton
