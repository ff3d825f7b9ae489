// SPDX-License-Identifier: Apache-2.0
// epic: the first k tokens of each segment are recomputed (EPIC, arXiv 2410.15332, LegoLink-k).
#include <algorithm>

#include "engine/reuse/policy.h"

namespace baton {

PromptSchedule epic_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         const std::int64_t last = std::int64_t{placed.begin} + options.epic_tokens;
                         for (std::int32_t at = begin; at < std::min<std::int64_t>(end, last); ++at)
                           builder.add_full(at);
                       });
}

}  // namespace baton
