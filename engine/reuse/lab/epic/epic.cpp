// SPDX-License-Identifier: Apache-2.0
// epic: the first k tokens of each segment are recomputed (EPIC, arXiv 2410.15332, LegoLink-k). With a fraction to be
// reused, k follows from the segment's length.
#include <algorithm>

#include "engine/reuse/schedule.h"

namespace baton {

PromptSchedule epic_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         const auto n = static_cast<std::size_t>(end - begin);
                         const auto last = options.reuse > 0.0
                                               ? begin + static_cast<std::int64_t>(tokens_for_reuse(
                                                             options.reuse, input.layers, n, 0, input.layers))
                                               : std::int64_t{placed.begin} + options.epic_tokens;
                         for (std::int32_t at = begin; at < std::min<std::int64_t>(end, last); ++at)
                           builder.add_full(at);
                       });
}

}  // namespace baton
