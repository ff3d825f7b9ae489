// relay: reused tokens enter at l_s from their stored hidden states, are compared in l_d, and the chosen ones go on to
// l_e (RelayCaching, docs/methods.md). The received attention and the last tokens choose without any computation; where
// entropy chooses, nothing else does, and nothing is compared.
#include "engine/reuse/policy.h"
#include "engine/reuse/selection.h"

namespace baton {

PromptSchedule relay_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  const LayerRange range = options.range;
  const SelectionOptions& selection = options.selection;
  ScheduleBuilder builder(input);
  const auto reused = [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
    const auto first = static_cast<std::size_t>(begin - placed.begin), n = static_cast<std::size_t>(end - begin);
    const std::span<const float> entropy = placed.segment->entropy, received = placed.segment->received();
    if (selection.score == SelectionOptions::Score::entropy && selection.share > 0.0 && first + n <= entropy.size()) {
      const std::vector<bool> chosen = select_by_entropy(selection, entropy.subspan(first, n));
      for (std::size_t i = 0; i < n; ++i) {
        if (chosen[i]) builder.add(begin + static_cast<std::int32_t>(i), {range.start, range.end + 1, -1, true});
      }
      return;
    }
    std::vector<float> known;
    if (!received.empty())
      known.assign(received.begin() + static_cast<std::ptrdiff_t>(first),
                   received.begin() + static_cast<std::ptrdiff_t>(first + n));
    const std::int32_t detection = builder.add_detection(
        {range.detect, range.end + 1, [selection, known = std::move(known)](std::span<const float> deviation) {
           return select_tokens(selection, deviation, known);
         }});
    for (std::int32_t at = begin; at < end; ++at) builder.add(at, {range.start, range.detect + 1, detection, true});
  };
  return builder.build([&](std::int32_t at) { builder.add_full(at); }, reused);
}

}  // namespace baton
