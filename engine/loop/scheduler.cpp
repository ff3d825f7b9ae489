// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/scheduler.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace baton {
namespace {

constexpr double kDeadlineFactor = 2.0;
constexpr std::int32_t kMinFill = 4;     // rows with which a tile is filled, at least
constexpr double kDecodeFraction = 0.1;  // of a step, for decoding sequences whose siblings are being prefilled

}  // namespace

std::vector<std::int32_t> plan_step(std::span<const Pending> sequences, std::int32_t prompt_rows) {
  std::vector<std::int32_t> rows(sequences.size(), 0);
  std::vector<std::size_t> order(sequences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sequences[a].deadline < sequences[b].deadline; });
  std::int32_t left = prompt_rows;
  for (const std::size_t i : order) {
    rows[i] = sequences[i].decoding ? sequences[i].tokens : std::min(sequences[i].tokens, left);
    if (!sequences[i].decoding) left -= rows[i];
  }
  return rows;
}

double prompt_deadline(double arrival_ms, double alone_ms) { return arrival_ms + kDeadlineFactor * alone_ms; }

std::int32_t rows_before_siblings(const StepTimesPerRow& times, std::int32_t decoding, std::int32_t max_rows) {
  if (times.plain_ms <= 0.0) return 0;
  if (times.row_ms <= 0.0) return max_rows;
  const double rows = times.plain_ms * (1.0 - kDecodeFraction) / (kDecodeFraction * times.row_ms);
  if (rows >= max_rows) return max_rows;
  const std::int32_t spare = std::max(static_cast<std::int32_t>(rows), rows_to_fill(decoding, max_rows));
  return rows_in_tiles(spare, decoding, std::numeric_limits<std::int32_t>::max(), max_rows);
}

std::int32_t rows_in_tiles(std::int32_t spare, std::int32_t decoding, std::int32_t pending, std::int32_t max_rows) {
  if (spare >= pending) return std::min(pending, max_rows);
  const std::int32_t fill = rows_to_fill(decoding, max_rows);
  if (spare < fill) return 0;
  return std::min(fill + (spare - fill) / kRowTile * kRowTile, max_rows);
}

std::int32_t rows_to_fill(std::int32_t decoding, std::int32_t max_rows) {
  const std::int32_t fill = kRowTile - decoding % kRowTile;
  return std::clamp(max_rows, 1, fill < kMinFill ? fill + kRowTile : fill);
}

}  // namespace baton
