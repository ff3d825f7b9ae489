// SPDX-License-Identifier: Apache-2.0
// full: every token runs through every layer. prefix and lockstep: the same after the exact KV that the cache holds.
#include "engine/reuse/schedule.h"

namespace baton {

PromptSchedule full_schedule(const ReuseOptions&, const ScheduleInput& input) {
  ScheduleInput text = input;
  text.segments = {};
  ScheduleBuilder builder(text);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [](const PlacedSegment&, std::int32_t, std::int32_t) {});
}

}  // namespace baton
