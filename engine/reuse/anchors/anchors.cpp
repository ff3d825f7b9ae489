// SPDX-License-Identifier: Apache-2.0
// anchors: the KV of reused tokens is corrected while it is copied into the cache (KVComm, anchor_choice.h); tokens
// whose correction is uncertain run through all layers.
#include "engine/reuse/schedule.h"

namespace baton {

PromptSchedule anchors_schedule(const ReuseOptions&, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         for (std::int32_t at = begin; at < end; ++at) {
                           const auto token = static_cast<std::size_t>(at - placed.begin);
                           if (token < placed.recompute.size() && placed.recompute[token])
                             builder.add(at, {0, input.layers, -1, true});
                         }
                       });
}

}  // namespace baton
