// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/direct/direct.h"

namespace baton {
namespace {

PromptSchedule direct_schedule(const ReuseOptions&, const ReuseDecision&, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [](const PlacedSegment&, std::int32_t, std::int32_t) {});
}

constexpr Method kDirect = {.name = "direct",
                            .summary = "The KV of handed-over texts is moved to its new positions and not recomputed.",
                            .traits = {.segments = true, .models = true},
                            .schedule = direct_schedule};

}  // namespace

const Method& direct_method() { return kDirect; }

}  // namespace baton
