// SPDX-License-Identifier: Apache-2.0
// droidspeak: a group of layers is recomputed for all reused tokens, from the hidden states that their author stored at
// the group's first layer. The other layers keep the author's keys and values. The author may be another model
// (DroidSpeak, docs/methods.md). With a time to keep, the size of the group follows from it.
#include "engine/reuse/schedule.h"

namespace baton {

LayerRange group_in_time(const ReuseOptions& options, const ScheduleInput& input) {
  LayerRange group = options.range;
  if (options.ttft_ms <= 0.0 || input.time.row <= 0.0) return group;
  std::int32_t reused = 0;
  for (const PlacedSegment& placed : input.segments)
    reused += std::max(placed.end() - std::max(placed.begin, input.prefix), 0);
  const double text = input.length - input.prefix - reused;
  for (const std::int32_t end : options.group_ends) {
    const LayerRange larger = LayerRange::group(group.start, end);
    const double rows = text + static_cast<double>(reused) * (end + 1 - group.start) / input.layers;
    if (rows * input.time.row > input.time.left) break;
    group = larger;
  }
  return group;
}

PromptSchedule droidspeak_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  const LayerRange group = group_in_time(options, input);
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment&, std::int32_t begin, std::int32_t end) {
                         for (std::int32_t at = begin; at < end; ++at)
                           builder.add(at, {group.start, group.end + 1, -1, true, true});
                       });
}

}  // namespace baton
