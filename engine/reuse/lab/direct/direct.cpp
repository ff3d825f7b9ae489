// SPDX-License-Identifier: Apache-2.0
// direct: reused tokens are not run; their keys are only rotated to the new positions.
#include "engine/reuse/schedule.h"

namespace baton {

PromptSchedule direct_schedule(const ReuseOptions&, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [](const PlacedSegment&, std::int32_t, std::int32_t) {});
}

}  // namespace baton
