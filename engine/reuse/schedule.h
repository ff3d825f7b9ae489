// SPDX-License-Identifier: Apache-2.0
// PromptSchedule: the layers that each position of a prompt runs through. Every reuse method is a function that makes a
// schedule (docs/methods.md has the table); the engine runs the schedule without knowing the method.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/model/step.h"
#include "engine/reuse/options.h"

namespace baton {
/// Reused KV inside a prompt: a segment's n tokens at positions [begin, begin + n), or fixed text whose KV the
/// method has.
struct PlacedSegment {
  std::int32_t begin = 0;
  const Segment* segment = nullptr;  // null: fixed text
  std::vector<bool> recompute{};     // [n] tokens whose placed KV is uncertain and recomputed; empty: none
  std::int32_t text_length = 0;      // n of fixed text
  bool imported = false;             // another model made its KV: that of layer 0, too, is computed if a row runs there
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
  std::string note;                    // what was chosen for the reused texts, for the record; empty: nothing
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
  PromptTime time;                          // for methods that recompute as much as the time allows
};

/// Returns the schedule of the method for what was decided, or for what the options ask. Throws std::invalid_argument
/// when the layer range does not fit the method.
PromptSchedule make_schedule(const ReuseOptions& reuse, const ReuseDecision& decision, const ScheduleInput& input);
PromptSchedule make_schedule(const ReuseOptions& reuse, const ScheduleInput& input);

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
      const std::size_t first = schedule_.rows.size();
      if (at < end) reused(placed, at, end);
      for (std::size_t i = first; placed.imported && i < schedule_.rows.size(); ++i)
        schedule_.rows[i].path.anew |= schedule_.rows[i].path.enter == 0;
      at = std::max(at, end);
    }
    for (; at < input_.length; ++at) text(at);
    return std::move(schedule_);
  }

  void add(std::int32_t position, RowPath path) { schedule_.rows.push_back({position, path}); }
  void add_full(std::int32_t position) { add(position, {0, input_.layers, -1}); }
  void set_note(std::string note) { schedule_.note = std::move(note); }
  void set_guard(std::shared_ptr<const Guard> guard) { schedule_.guard = std::move(guard); }
  std::int32_t add_detection(Detection detection) {
    schedule_.detections.push_back(std::move(detection));
    return static_cast<std::int32_t>(schedule_.detections.size()) - 1;
  }

 private:
  const ScheduleInput& input_;
  PromptSchedule schedule_;
};

}  // namespace baton
