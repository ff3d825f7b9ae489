// SPDX-License-Identifier: Apache-2.0
// PromptSchedule: which positions of a prompt run through which layers. Every reuse method is a function that makes one
// (docs/methods.md has the table); the engine runs it without knowing the method.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/model/step_rows.h"
#include "engine/reuse/options.h"

namespace baton {

/// Reused KV inside a prompt: that of a segment's n tokens at positions [begin, begin + n), or of text that anchors
/// know.
struct PlacedSegment {
  std::int32_t begin = 0;
  const Segment* segment = nullptr;  // null: text
  std::vector<bool> recompute{};     // anchors: [n] tokens that run all the same; empty: none
  std::int32_t text_length = 0;      // n of text
  std::int32_t length() const { return segment != nullptr ? segment->length() : text_length; }
  std::int32_t end() const { return begin + length(); }
};

struct ScheduledRow {
  std::int32_t position = 0;
  RowPath path;  // path.detection: index into PromptSchedule::detections
};

struct PromptSchedule {
  std::vector<ScheduledRow> rows;     // ascending positions; the last is the prompt's last token, through all layers
  std::vector<Detection> detections;  // the rows of one must run in one step
};

/// Layers [begin, end) in which text and chosen tokens run, and behind which text runs alone.
struct SparseLayers {
  std::int32_t begin = 0, end = 0;
};
/// Empty, at the end of all layers, where every row of the schedule runs through all of them.
SparseLayers sparse_layers_of(const PromptSchedule& schedule, std::int32_t layers);

struct ScheduleInput {
  std::int32_t length = 0;                  // tokens of the prompt
  std::int32_t prefix = 0;                  // positions that are in the cache already, exactly
  std::span<const PlacedSegment> segments;  // ascending, apart from each other; the prefix may reach into the first
  std::int32_t layers = 0;                  // L
};

/// The schedule of options.method. Throws std::invalid_argument where options.range is not what the method needs.
PromptSchedule make_schedule(const ReuseOptions& options, const ScheduleInput& input);

}  // namespace baton
