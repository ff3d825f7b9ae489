// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/epic/epic.h"

#include <algorithm>
#include <cmath>

#include "engine/reuse/method.h"

namespace baton {
namespace {

PromptSchedule epic_schedule(const ReuseOptions& reuse, const ReuseDecision& decision, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         const auto n = static_cast<std::size_t>(end - begin);
                         const auto last = decision.reuse > 0.0
                                               ? begin + static_cast<std::int64_t>(tokens_for_reuse(
                                                             decision.reuse, input.layers, n, 0, input.layers))
                                               : std::int64_t{placed.begin} + own<EpicOptions>(reuse).tokens;
                         for (std::int32_t at = begin; at < std::min<std::int64_t>(end, last); ++at)
                           builder.add_full(at);
                       });
}

std::string epic_problem(const ReuseOptions& reuse) {
  std::string problem;
  expect_fraction(problem, "reuse", own<EpicOptions>(reuse).reuse);
  expect_not_negative(problem, "epic_tokens", own<EpicOptions>(reuse).tokens);
  return problem;
}

constexpr Method kEpic = {
    .name = "epic",
    .summary = "The first tokens of each handed-over text are recomputed.",
    .traits = {.segments = true, .models = true},
    .schedule = epic_schedule,
    .asked_reuse = [](const ReuseOptions& reuse) { return own<EpicOptions>(reuse).reuse; },
    .problem = epic_problem,
    .recompute = [](ReuseOptions& reuse, double, std::int32_t tokens) { own<EpicOptions>(reuse).tokens = tokens; },
    .keys =
        [] {
          return std::vector<MethodKey>{reuse_key(),
                                        {.name = "epic_tokens",
                                         .type = MethodKey::Type::integer,
                                         .standard = "16",
                                         .doc = "the first tokens of each segment are recomputed.",
                                         .lab = true}};
        },
    .read =
        [](GivenKeys& given, ReuseOptions& reuse) {
          EpicOptions& options = own<EpicOptions>(reuse);
          options.tokens = static_cast<std::int32_t>(given.integer("epic_tokens").value_or(options.tokens));
          if (!given.has("reuse")) return;
          options.reuse = given.number("reuse").value_or(0.0f);
          given.refuse({"epic_tokens"}, "with `reuse`, which says how much is recomputed");
        }};

}  // namespace

const Method& epic_method() { return kEpic; }

}  // namespace baton
