// SPDX-License-Identifier: Apache-2.0
// full: every token runs through every layer. prefix and lockstep: the same after the exact KV that the cache holds,
// except for texts that lockstep with a tolerance takes from anchors.
#include "engine/reuse/policy.h"

namespace baton {

PromptSchedule full_schedule(const ReuseOptions&, const ScheduleInput& input) {
  ScheduleInput text = input;
  text.segments = {};
  ScheduleBuilder builder(text);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [](const PlacedSegment&, std::int32_t, std::int32_t) {});
}

PromptSchedule lockstep_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  return options.tolerance > 0.0f ? anchors_schedule(options, input) : full_schedule(options, input);
}

}  // namespace baton
