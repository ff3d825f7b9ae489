// SPDX-License-Identifier: Apache-2.0
// epic: the first k tokens of each segment are recomputed (EPIC, arXiv 2410.15332, LegoLink-k). With a fraction to be
// reused, k follows from the segment's length.
#pragma once

#include "engine/reuse/decision.h"
#include "engine/reuse/schedule.h"

namespace baton {

struct EpicOptions {
  std::int32_t tokens = 16;  // number of first tokens of each segment to recompute (LegoLink-k)
  double reuse = 0.0;        // above 0: the fraction of the segments' (token, layer) entries that stays reused instead
};

const Method& epic_method();

}  // namespace baton
