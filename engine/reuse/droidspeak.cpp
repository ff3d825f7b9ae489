// SPDX-License-Identifier: Apache-2.0
// droidspeak: a group of layers is recomputed for all reused tokens, from the hidden states that their author stored at
// the group's first layer. The other layers keep the author's keys and values. The author may be another model
// (DroidSpeak, docs/methods.md).
#include "engine/reuse/policy.h"

namespace baton {

PromptSchedule droidspeak_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment&, std::int32_t begin, std::int32_t end) {
                         for (std::int32_t at = begin; at < end; ++at)
                           builder.add(at, {options.range.start, options.range.end + 1, -1, true, true});
                       });
}

}  // namespace baton
