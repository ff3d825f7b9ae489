// relay: reused tokens enter at l_s from their stored hidden states, are compared in l_d, and the chosen ones go on to
// l_e (RelayCaching, docs/methods.md). The received attention and the last tokens choose without any computation.
#include "engine/reuse/policy.h"
#include "engine/reuse/selection.h"

namespace baton {
namespace {

/// Tokens [first, first + n) of a segment.
struct Known {
  std::vector<float> received;
  std::vector<float> observers;
};

Known known_of(const Segment& segment, std::int32_t first, std::int32_t n) {
  Known known;
  if (segment.received().empty()) return known;
  for (std::int32_t i = first; i < first + n; ++i) {
    known.received.push_back(segment.received()[static_cast<std::size_t>(i)]);
    known.observers.push_back(static_cast<float>(segment.observers(i)));
  }
  return known;
}

}  // namespace

PromptSchedule relay_schedule(const ReuseOptions& options, const ScheduleInput& input) {
  const LayerRange range = options.range;
  ScheduleBuilder builder(input);
  return builder.build([&](std::int32_t at) { builder.add_full(at); },
                       [&](const PlacedSegment& placed, std::int32_t begin, std::int32_t end) {
                         const auto choose = [selection = options.selection,
                                              known = known_of(*placed.segment, begin - placed.begin, end - begin)](
                                                 std::span<const float> deviation) {
                           return select_tokens(selection, {deviation, known.received, known.observers});
                         };
                         const std::int32_t detection = builder.add_detection({range.detect, range.end + 1, choose});
                         for (std::int32_t at = begin; at < end; ++at)
                           builder.add(at, {range.start, range.detect + 1, detection, true});
                       });
}

}  // namespace baton
