// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/droidspeak/droidspeak.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/reuse/method.h"

namespace baton {

LayerRange group_in_time(const ReuseOptions& options, const LayerRange& range, const ScheduleInput& input) {
  LayerRange group = range;
  if (wanted_ttft_ms(options) <= 0.0 || input.time.row <= 0.0) return group;
  std::int32_t reused = 0;
  for (const PlacedSegment& placed : input.segments)
    reused += std::max(placed.end() - std::max(placed.begin, input.prefix), 0);
  const double text = input.length - input.prefix - reused;
  for (const std::int32_t end : options.larger_ends) {
    const LayerRange larger = LayerRange::group(group.start, end);
    const double rows = text + static_cast<double>(reused) * (end + 1 - group.start) / input.layers;
    if (rows * input.time.row > input.time.left) break;
    group = larger;
  }
  return group;
}

namespace {

PromptSchedule droidspeak_schedule(const ReuseOptions& options, const ReuseDecision& decision,
                                   const ScheduleInput& input) {
  const LayerRange group = group_in_time(options, decision.range, input);
  ScheduleBuilder builder(input);
  if (wanted_ttft_ms(options) > 0.0)
    builder.set_note(fmt::format("layers {} to {} recomputed", group.start, group.end));
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment&, std::int32_t begin, std::int32_t end) {
                         for (std::int32_t at = begin; at < end; ++at)
                           builder.add(at, {group.start, group.end + 1, -1, true, true});
                       });
}

constexpr Method kDroidspeak = {
    .name = "droidspeak",
    .summary = "A group of layers is recomputed for all tokens; the author may be another model.",
    .traits = {.segments = true, .layers = MethodTraits::Layers::group, .hidden_states = true, .models = true},
    .schedule = droidspeak_schedule,
    .wanted_ttft_ms = [](const ReuseOptions& reuse) { return own<DroidspeakOptions>(reuse).ttft_ms; },
    .keys =
        [] {
          return std::vector<MethodKey>{
              {.name = "ttft",
               .type = MethodKey::Type::time_limit,
               .standard = "none",
               .doc =
                   "the time in which an agent's first token should come. An agent that is expected to keep it "
                   "recomputes more layers than the pair's profile asks for, the largest group that the profile has; "
                   "while other prompts wait or are computed, and if the time is too short, it recomputes those of "
                   "the profile.",
               .only_here = true}};
        },
    .read =
        [](GivenKeys& given, ReuseOptions& reuse) {
          if (given.has("layers")) {
            given.refuse({"ttft"}, "with `layers`, which says what is recomputed");
          } else if (const auto ttft = given.milliseconds("ttft")) {
            own<DroidspeakOptions>(reuse).ttft_ms = *ttft;
          }
        }};

}  // namespace

const Method& droidspeak_method() { return kDroidspeak; }

}  // namespace baton
