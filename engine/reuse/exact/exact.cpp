// SPDX-License-Identifier: Apache-2.0
// full: every token runs through every layer. prefix and lockstep: the same after the exact KV that the cache holds.
#include "engine/reuse/exact/exact.h"

namespace baton {
namespace {

PromptSchedule full_of(const ReuseOptions&, const ReuseDecision&, const ScheduleInput& input) {
  return full_schedule(input);
}

constexpr Method kFull = {.name = "full",
                          .summary = "Every token of a prompt is computed in every layer.",
                          .traits = {.exact = true, .prefixes = MethodTraits::Prefixes::never},
                          .schedule = full_of};

constexpr Method kPrefix = {.name = "prefix",
                            .summary = "The KV of a prefix that an earlier prompt had is reused; the rest is computed.",
                            .traits = {.exact = true, .prefixes = MethodTraits::Prefixes::always},
                            .schedule = full_of};

constexpr Method kLockstep = {
    .name = "lockstep",
    .summary = "A prompt is computed ahead of its request, in rows of the steps in which others decode.",
    .alias = "exact",
    .traits = {.exact = true, .prefixes = MethodTraits::Prefixes::always, .ahead = true},
    .schedule = full_of};

}  // namespace

const Method& full_method() { return kFull; }
const Method& prefix_method() { return kPrefix; }
const Method& lockstep_method() { return kLockstep; }

PromptSchedule full_schedule(const ScheduleInput& input) {
  ScheduleInput text = input;
  text.segments = {};
  ScheduleBuilder builder(text);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [](const PlacedSegment&, std::int32_t, std::int32_t) {});
}

}  // namespace baton
