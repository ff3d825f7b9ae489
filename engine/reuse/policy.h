// SPDX-License-Identifier: Apache-2.0
// The builder that the methods' schedules share. Each method has one small file.
#pragma once

#include <algorithm>

#include "engine/reuse/schedule.h"

namespace baton {

/// Returns how many of n tokens may be recomputed in `each` layers so that the fraction `reuse` of the n * L entries is
/// kept, where `all` layers are computed for every token in any case.
inline std::size_t tokens_for_reuse(double reuse, std::int32_t layers, std::size_t n, std::int32_t all,
                                    std::int32_t each) {
  const double entries = ((1.0 - reuse) * layers - all) * static_cast<double>(n);
  if (each <= 0) return n;
  return std::min(n, static_cast<std::size_t>(std::max(0.0, entries / each + 1e-6)));
}

/// Collects the rows of a prompt, text and segments, by ascending position.
class ScheduleBuilder {
 public:
  explicit ScheduleBuilder(const ScheduleInput& input) : input_(input) {}

  /// Calls text(position) for each position outside of the segments, and segment(placed, begin, end) for the positions
  /// of each segment that the prefix does not hold and that are not the prompt's last.
  template <class Text, class Reused>
  PromptSchedule build(const Text& text, const Reused& reused) {
    std::int32_t at = input_.prefix;
    for (const PlacedSegment& placed : input_.segments) {
      for (; at < placed.begin; ++at) text(at);
      const std::int32_t end = std::min(placed.end(), input_.length - 1);
      if (at < end) reused(placed, at, end);
      at = std::max(at, end);
    }
    for (; at < input_.length; ++at) text(at);
    return std::move(schedule_);
  }

  void add(std::int32_t position, RowPath path) { schedule_.rows.push_back({position, path}); }
  void add_full(std::int32_t position) { add(position, {0, input_.layers, -1}); }
  void set_guard(std::shared_ptr<const Guard> guard) { schedule_.guard = std::move(guard); }
  std::int32_t add_detection(Detection detection) {
    schedule_.detections.push_back(std::move(detection));
    return static_cast<std::int32_t>(schedule_.detections.size()) - 1;
  }

 private:
  const ScheduleInput& input_;
  PromptSchedule schedule_;
};

PromptSchedule full_schedule(const ReuseOptions& options, const ScheduleInput& input);  // also of prefix and lockstep
PromptSchedule direct_schedule(const ReuseOptions& options, const ScheduleInput& input);
PromptSchedule epic_schedule(const ReuseOptions& options, const ScheduleInput& input);
PromptSchedule cacheblend_schedule(const ReuseOptions& options, const ScheduleInput& input);
PromptSchedule rectify_schedule(const ReuseOptions& options, const ScheduleInput& input);
PromptSchedule auto_schedule(const ReuseOptions& options, const ScheduleInput& input);
PromptSchedule anchors_schedule(const ReuseOptions& options, const ScheduleInput& input);
PromptSchedule droidspeak_schedule(const ReuseOptions& options, const ScheduleInput& input);

}  // namespace baton
