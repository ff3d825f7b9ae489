// SPDX-License-Identifier: Apache-2.0
// The rows of the next engine step: one for every decoding sequence, then chunks of prompts, earliest deadline first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

/// The tokens that a sequence has left to run.
struct Pending {
  std::int32_t tokens = 0;  // 0: it has to wait
  bool decoding = false;
  double deadline = 0;  // of a prompt, in milliseconds: when it should be in the cache
};

/// Returns the number of rows of each sequence in the next step. Every decoding sequence gets its row. Prompts get at
/// most `prompt_rows` rows together; the one with the earliest deadline is served first, and of equal deadlines the
/// first in the given order.
std::vector<std::int32_t> plan_step(std::span<const Pending> sequences, std::int32_t prompt_rows);

/// Returns the deadline of a prompt that arrived at `arrival_ms` and takes `alone_ms` on an idle engine. With deadlines
/// at twice that time a short prompt overtakes a long one, and the long one cannot be overtaken forever.
double prompt_deadline(double arrival_ms, double alone_ms);

/// What is known about the steps of an engine.
struct StepTimesPerRow {
  double plain_ms = 0;  // a step without prompt rows; 0: not measured
  double row_ms = 0;    // a row of a prompt in a step of many rows; 0: not measured
};

/// Returns the number of prompt rows of a step with `decoding` rows of sequences whose requests arrived together with
/// the prompts. The prompts come first, so that the time of all is not longer; the decode rows take a small fraction of
/// the step. 0: the step measures plain_ms.
std::int32_t rows_before_siblings(const StepTimesPerRow& times, std::int32_t decoding, std::int32_t max_rows);

/// Returns the number of prompt rows that a step with `decoding` other rows takes of the `spare` rows that it may add;
/// `pending` rows are left. All rows of a step together fill tiles; unused rows are saved up by the caller.
std::int32_t rows_in_tiles(std::int32_t spare, std::int32_t decoding, std::int32_t pending, std::int32_t max_rows);

/// Returns the number of prompt rows that fill the last tile of a step with `decoding` other rows, or one more tile
/// where that were few: to read the KV of a sequence costs nearly as much for one row as for several. At least 1.
std::int32_t rows_to_fill(std::int32_t decoding, std::int32_t max_rows);

/// Rows for which the CPU's product takes quantised weights apart once, with AVX-512; elsewhere a multiple of them. A
/// ninth row costs a model of 0.5B as much as five others.
constexpr std::int32_t kRowTile = 8;

}  // namespace baton
