// SPDX-License-Identifier: Apache-2.0
// PromptSchedule: the layers that each position of a prompt runs through. Every reuse method is a function that makes a
// schedule (docs/methods.md has the table); the engine runs the schedule without knowing the method.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/model/step.h"
#include "engine/reuse/options.h"

namespace baton {
/// Reused KV inside a prompt: a segment's n tokens at positions [begin, begin + n), or fixed text whose KV comes from
/// anchors.
struct PlacedSegment {
  std::int32_t begin = 0;
  const Segment* segment = nullptr;  // null: fixed text
  std::vector<bool> recompute{};     // anchors: [n] tokens that are recomputed; empty: none
  std::int32_t text_length = 0;      // n of fixed text
  std::int32_t length() const { return segment != nullptr ? segment->length() : text_length; }
  std::int32_t end() const { return begin + length(); }
};

struct ScheduledRow {
  std::int32_t position = 0;
  RowPath path;  // path.detection: index into PromptSchedule::detections
};

/// What a choice by change leaves: the mean, over all compared tokens, of the squared change of the values of those
/// that were not chosen. Written when the choice is made; below 0: there was none.
struct Guard {
  float left = -1.0f;
};

struct PromptSchedule {
  std::vector<ScheduledRow> rows;      // ascending positions; the last row is the prompt's last token, in all layers
  std::vector<Detection> detections;   // all rows of one detection, and its readers, must run in one step
  std::shared_ptr<const Guard> guard;  // null: nothing is measured
};

/// Layers [begin, end) in which only text and chosen tokens run; after `end`, only text runs.
struct SparseLayers {
  std::int32_t begin = 0, end = 0;
};
/// Returns the sparse layers of a schedule; [layers, layers) where every row runs through all layers.
SparseLayers sparse_layers_of(const PromptSchedule& schedule, std::int32_t layers);

/// How long a prompt may take, and what decides how long it will. Milliseconds.
struct PromptTime {
  double left = 0;  // until it should be complete
  double row = 0;   // of one row through all layers; 0: unknown
};

struct ScheduleInput {
  std::int32_t length = 0;                  // tokens of the prompt
  std::int32_t prefix = 0;                  // positions [0, prefix) of the cache hold exact KV
  std::span<const PlacedSegment> segments;  // ascending and disjoint; the prefix may reach into the first
  std::int32_t layers = 0;                  // L
  PromptTime time;                          // droidspeak: for the choice of the group
};

/// The largest fraction of the segments' (token, layer) entries that a method with a choice of tokens can leave reused:
/// what is computed for every token, whatever is chosen, cannot be.
double max_reuse(const ReuseOptions& options, std::int32_t layers);

/// Returns droidspeak's group for a prompt: the largest of `range` and those of `group_ends` with which it is expected
/// to be complete within the time that is left; that of `range` where none is, or the time of a row is unknown
/// (DroidSpeak, Appendix B).
LayerRange group_in_time(const ReuseOptions& options, const ScheduleInput& input);

/// Returns the schedule of options.method. Throws std::invalid_argument when options.range does not fit the method.
PromptSchedule make_schedule(const ReuseOptions& options, const ScheduleInput& input);

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
