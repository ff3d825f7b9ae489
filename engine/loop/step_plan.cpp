// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_plan.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

namespace baton {
namespace {

constexpr double kFirstLimit = 4.0;       // initial limit, rows
constexpr double kSaved = 16.0;           // maximum saved rows, if above twice the limit
constexpr double kForced = 64.0;          // rows beyond the saved ones from which a step is not measured
constexpr std::int32_t kPlainEvery = 64;  // steps between two undisturbed ones
constexpr std::int32_t kQuiet = 4;        // successive steps without added rows; the last is measured, since rows of
                                          // prompts make the next steps longer, too
constexpr double kNewest = 0.2;           // weight of the newest step without added rows in the mean
constexpr double kNewestOfAll = 0.05;     // weight of the newest step in the other means
constexpr double kAim = 0.95;             // target, as a fraction of the allowed slow-down
constexpr double kGain = 0.05;            // maximum change of the limit in a step, as a fraction
constexpr double kUsed = 0.8;             // use of the limit, as a fraction, from which it may grow

void add(double& mean, double value, double newest) { mean += newest * (value - mean); }

}  // namespace

SpareRows::SpareRows(double slowdown, std::int32_t max_rows) : slowdown_(slowdown), max_rows_(max_rows) {}

/// A new level begins with the limit of the next smaller level.
SpareRows::Level& SpareRows::level(std::int32_t decoding) {
  const auto [at, added] = levels_.try_emplace(decoding);
  if (added) at->second.limit = at == levels_.begin() ? std::min(kFirstLimit, max_rows_) : std::prev(at)->second.limit;
  return at->second;
}

std::int32_t SpareRows::next(std::int32_t decoding, double row_ms) {
  Level& now = level(decoding);
  asked_ = true;
  if (now.plain == 0.0) return 0;
  if (now.rows == 0.0 && row_ms > 0.0) now.limit = std::clamp(kAim * slowdown_ * now.plain / row_ms, 1.0, max_rows_);
  now.credit = std::min(now.credit + now.limit, std::max(kSaved, 2 * now.limit));
  if (++age_ > kPlainEvery) return 0;
  return static_cast<std::int32_t>(std::clamp(now.credit, 0.0, max_rows_));
}

void SpareRows::on_step(std::int32_t decoding, std::int32_t spare, double milliseconds) {
  quiet_ = spare == 0 ? quiet_ + 1 : 0;
  const bool undisturbed = quiet_ >= kQuiet;
  if (undisturbed) age_ = 0;
  if (decoding == 0) return;
  Level& now = level(decoding);
  if (undisturbed || (spare == 0 && now.plain == 0.0)) {
    add(now.plain, milliseconds, now.settled ? kNewest : 1.0);
    now.settled = undisturbed;
  }
  if (!std::exchange(asked_, false) || now.plain == 0.0) return;
  if (spare > now.credit + kForced) {
    now.credit = -kSaved;
    return;
  }
  now.credit -= spare;
  add(now.slower, milliseconds / now.plain - 1.0, kNewestOfAll);
  add(now.rows, spare, kNewestOfAll);
  if (spare == 0) return;
  const double aim = kAim * slowdown_;
  const double room = std::clamp((aim - now.slower) / aim, -1.0, 1.0);
  if (room > 0.0 && now.rows < kUsed * now.limit) return;
  now.limit = std::clamp(now.limit * (1.0 + kGain * room), 1.0, max_rows_);
}

double SpareRows::plain_ms(std::int32_t decoding) const {
  const auto found = levels_.find(decoding);
  return found == levels_.end() ? 0.0 : found->second.plain;
}

std::int32_t SpareRows::knee() const {
  const auto one = levels_.find(1);
  return one == levels_.end() || one->second.plain == 0.0 ? 0 : static_cast<std::int32_t>(one->second.limit);
}

namespace {

constexpr double kDeadlineFactor = 2.0;
constexpr std::int32_t kMinFill = 4;     // rows with which a tile is filled, at least
constexpr double kDecodeFraction = 0.1;  // of a step, for decoding sequences whose siblings are being prefilled

constexpr std::int32_t kIdleProbeRows = 64;  // of a step in which nothing else runs; a new request waits for this step

/// Returns the maximum number of prompt rows of the step.
std::int32_t max_prompt_rows(std::span<const SequenceSnapshot> sequences, const StepMeasures& measures,
                             const LocalEngineOptions& options) {
  const std::int32_t decoding = decoding_rows(sequences);
  std::int32_t left = 0;
  for (const SequenceSnapshot& one : sequences) left += one.decoding ? 0 : one.tokens;
  if (left == 0) return 0;
  const bool idle =
      std::all_of(sequences.begin(), sequences.end(), [](const SequenceSnapshot& one) { return one.probe; });
  if (decoding == 0) return idle ? std::min(kIdleProbeRows, options.max_step_rows) : options.max_prefill_rows;
  const std::int32_t max_rows = std::max(options.max_step_rows - decoding, 1);
  if (!keeps_decode_pace(sequences)) return rows_before_siblings(measures, decoding, max_rows);
  return rows_in_tiles(measures.spare_rows, decoding, left, max_rows);
}

/// While all sequences that decode are tentative, their exact prompts come first: what is written meanwhile may not
/// stay.
std::int32_t rows_of_twins(std::span<const SequenceSnapshot> sequences, const StepMeasures& measures,
                           const LocalEngineOptions& options) {
  const std::int32_t decoding = decoding_rows(sequences);
  const bool tentative = std::all_of(sequences.begin(), sequences.end(),
                                     [](const SequenceSnapshot& one) { return !one.decoding || one.tentative; });
  const bool twins =
      std::any_of(sequences.begin(), sequences.end(), [](const SequenceSnapshot& one) { return one.has_early; });
  if (!tentative || !twins || decoding == 0) return 0;
  return rows_before_siblings(measures, decoding, options.max_step_rows);
}

}  // namespace

DraftRule draft_rule(DraftKind kind, std::int32_t decoding, const LocalEngineOptions& options) {
  const bool certain = kind == DraftKind::check || (kind == DraftKind::forced && !options.token_by_token);
  const std::int32_t room = options.max_step_rows / std::max(decoding, 1) - 1;  // of each sequence
  const std::int32_t max_tokens = certain ? kMaxWholeDraft : options.max_draft;
  return {std::clamp(room, 0, max_tokens), certain || options.draft_always};
}

std::int32_t decoding_sequences(std::span<const SequenceSnapshot> sequences) {
  return static_cast<std::int32_t>(
      std::count_if(sequences.begin(), sequences.end(), [](const SequenceSnapshot& one) { return one.decoding; }));
}

std::int32_t decoding_rows(std::span<const SequenceSnapshot> sequences) {
  std::int32_t rows = 0;
  for (const SequenceSnapshot& one : sequences) rows += one.decoding ? one.tokens : 0;
  return rows;
}

bool is_prefilling(std::span<const SequenceSnapshot> sequences) {
  return std::any_of(sequences.begin(), sequences.end(),
                     [](const SequenceSnapshot& one) { return !one.decoding && !one.probe; });
}

bool keeps_decode_pace(std::span<const SequenceSnapshot> sequences) {
  const SequenceSnapshot* next = nullptr;  // the prompt that is served next
  for (const SequenceSnapshot& one : sequences) {
    if (one.decoding || one.tokens == 0 || (next != nullptr && one.deadline >= next->deadline)) continue;
    next = &one;
  }
  return next != nullptr && std::any_of(sequences.begin(), sequences.end(), [&](const SequenceSnapshot& one) {
           return one.decoding && (next->probe || one.prefilled < next->submitted);
         });
}

StepPlan plan_step(std::span<const SequenceSnapshot> sequences, const StepMeasures& measures,
                   const LocalEngineOptions& options) {
  return {share_rows(sequences, max_prompt_rows(sequences, measures, options)),
          rows_of_twins(sequences, measures, options)};
}

std::vector<std::int32_t> share_rows(std::span<const SequenceSnapshot> sequences, std::int32_t prompt_rows) {
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

std::int32_t rows_before_siblings(const StepMeasures& times, std::int32_t decoding, std::int32_t max_rows) {
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
