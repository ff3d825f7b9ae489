// SPDX-License-Identifier: Apache-2.0
// cacheblend: all tokens run through layer 0, and their values are compared in layer 1. The tokens whose values differ
// most there are recomputed in all layers from there (CacheBlend, arXiv 2405.16444). As in the authors' program
// (github.com/YaoJiayi/CacheBlend), the difference is the squared norm over all heads, the choice is made once, in
// layer 1, and over all reused tokens of the prompt, and the number is rounded down. The paper's gradual filtering,
// which lowers the number from layer to layer, is in neither program.
#include <cmath>

#include "engine/reuse/rectify/selection.h"
#include "engine/reuse/schedule.h"

namespace baton {

PromptSchedule cacheblend_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  ScheduleBuilder builder(input);
  if (input.layers < 2) return full_schedule(options, input);
  const bool by_cosine = options.cacheblend_score == ReuseOptions::Blend::cosine;
  const auto choose = [share = options.cacheblend_share, reuse = options.reuse, layers = input.layers, by_cosine](
                          std::span<const float> deviation, std::span<const float>) {
    const std::vector<double> scores(deviation.begin(), deviation.end());
    const double wanted = share * static_cast<double>(scores.size());
    const auto count = static_cast<std::size_t>(by_cosine ? std::ceil(wanted) : std::floor(wanted + 1e-6));
    return largest(scores, reuse > 0.0 ? tokens_for_reuse(reuse, layers, scores.size(), 1, layers - 2) : count);
  };
  const ValueMeasure measure = by_cosine ? ValueMeasure::cosine : ValueMeasure::squared;
  std::int32_t detection = -1;
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment&, std::int32_t begin, std::int32_t end) {
                         if (detection < 0 || by_cosine)
                           detection = builder.add_detection({1, input.layers, choose, measure});
                         for (std::int32_t at = begin; at < end; ++at) builder.add(at, {0, 2, detection, true});
                       });
}

}  // namespace baton
