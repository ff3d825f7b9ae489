// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/lab/lab_methods.h"

#include <array>

#include "engine/registry.h"
#include "engine/reuse/lab/cacheblend/cacheblend.h"
#include "engine/reuse/lab/epic/epic.h"
#include "engine/reuse/lab/kvcomm/kvcomm.h"
#include "engine/reuse/lab/scores/scores.h"

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

void register_lab_methods() {
  static const std::array kMethods = {
      &direct_method(),
      &epic_method(),
      &cacheblend_method(),
      &kvcomm_method(),
  };
  set_token_scores(lab_token_scores());
  register_laboratory(kMethods);
}

}  // namespace baton
