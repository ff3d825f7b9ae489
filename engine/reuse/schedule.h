// SPDX-License-Identifier: Apache-2.0
// PromptSchedule: the layers that each position of a prompt runs through. Every reuse method is a function that makes a
// schedule (docs/methods.md has the table); the engine runs the schedule without knowing the method.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv/segment.h"
#include "engine/model/step_rows.h"
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

}  // namespace baton
