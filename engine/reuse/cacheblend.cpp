// SPDX-License-Identifier: Apache-2.0
// cacheblend: all tokens run through layer 0, and their values are compared in layer 1. The fraction of tokens that
// deviate most is recomputed in all layers from there (CacheBlend, arXiv 2405.16444). The fraction counts per segment.
#include <cmath>

#include "engine/reuse/policy.h"
#include "engine/reuse/selection.h"

namespace baton {

PromptSchedule cacheblend_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  if (input.layers < 2) return full_schedule(options, input);
  const auto choose = [share = options.cacheblend_share](std::span<const float> deviation) {
    const std::vector<double> scores(deviation.begin(), deviation.end());
    return largest(scores, static_cast<std::size_t>(std::ceil(share * static_cast<double>(scores.size()))));
  };
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment&, std::int32_t begin, std::int32_t end) {
                         const std::int32_t detection = builder.add_detection({1, input.layers, choose});
                         for (std::int32_t at = begin; at < end; ++at) builder.add(at, {0, 2, detection, true});
                       });
}

}  // namespace baton
