// SPDX-License-Identifier: Apache-2.0
// The plan of the next engine step, a pure function of a snapshot of the running sequences: how long drafts may be, the
// rows of each sequence (one row and its draft for each one that decodes, then chunks of prompts, earliest deadline
// first), and the rows that early prompts get even if they are not spare. SpareRows measures how many rows of prompts a
// step may add to those of sequences that decode.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/local_engine.h"
#include "engine/loop/speculation.h"

namespace baton {

/// Measures how many rows of prompts a step may add to those of sequences that decode.
class SpareRows {
 public:
  /// `slowdown`: the fraction by which added rows may lengthen decode steps on average.
  /// `max_rows`: maximum rows of a step.
  SpareRows(double slowdown, std::int32_t max_rows);

  /// Returns the number of rows that the next step may add to its `decoding` rows, which are at least 1. Rows that are
  /// not used are saved up, so that a later step can add several at once. Now and then it returns 0 in several steps in
  /// succession, so that the last of them is undisturbed: the baseline of the measurement. `row_ms`: time of a row in a
  /// step of many rows, from which the first limit follows; 0: not measured.
  std::int32_t next(std::int32_t decoding, double row_ms = 0);

  /// Reports the duration of a step with `decoding` and `spare` rows. Also called without next() when there are no rows
  /// to add or none that decode. More rows than next() allowed (rows that must run in one step) delay later ones and
  /// are not measured.
  void on_step(std::int32_t decoding, std::int32_t spare, double milliseconds);

  /// Milliseconds of a step without added rows; 0: not measured yet.
  double plain_ms(std::int32_t decoding) const;

  /// Average number of rows that fit into a step with one decoding sequence, as last measured; 0: not measured yet.
  std::int32_t knee() const;

 private:
  struct Level {           // measurements of steps with the same number of decoding rows
    double plain = 0;      // milliseconds of a step without added rows; 0: not measured
    bool settled = false;  // `plain` was measured in undisturbed steps
    double slower = 0;     // fraction by which steps were slower than `plain`
    double rows = 0;       // mean number of added rows per step
    double limit = 0;      // upper limit of `rows`
    double credit = 0;     // rows saved up
  };
  Level& level(std::int32_t decoding);

  double slowdown_;
  double max_rows_;
  bool asked_ = false;      // next() was called for the next step
  std::int32_t quiet_ = 0;  // steps without added rows since the last one with some
  std::int32_t age_ = 0;    // steps since the last undisturbed one
  std::map<std::int32_t, Level> levels_;
};

/// Where a decoding sequence's draft comes from.
enum class DraftKind : std::uint8_t {
  guess,   // from earlier tokens; may be wrong
  forced,  // from a forced answer, or a choice that is scored
  check,   // from a tentative answer; all of it must run
};

/// What the plan knows of a running sequence.
struct SequenceSnapshot {
  std::int32_t tokens = 0;  // Sequence::pending(), filled in after drafts are found; 0: it waits
  bool decoding = false;    // each step gives a token; false for probes, whose rows count like a prompt's
  double deadline = 0;      // milliseconds; time by which a prompt should be in the cache
  bool probe = false;       // measures a turn (relay_probe.h); gets only rows that nothing else needs
  bool tentative = false;   // method verified: its output may be discarded
  bool has_early = false;   // its request has an early prompt, which gives a tentative sequence exact KV
  DraftKind draft = DraftKind::guess;
  Clock::time_point submitted{};  // when the request was submitted
  Clock::time_point prefilled{};  // when a decoding sequence's prompt was complete
};

/// How long a draft may be, and how much of it runs.
struct DraftRule {
  std::int32_t max_tokens = 0;  // maximum tokens of the draft
  bool whole = false;           // true: all of it runs; false: DraftLength chooses
};

/// Returns the rule for a sequence's draft in a step. `decoding`: number of decoding sequences without probes.
DraftRule draft_rule(DraftKind kind, std::int32_t decoding, const LocalEngineOptions& options);

/// Returns the number of sequences that decode.
std::int32_t decoding_sequences(std::span<const SequenceSnapshot> sequences);
/// Returns the number of rows of sequences that decode.
std::int32_t decoding_rows(std::span<const SequenceSnapshot> sequences);
/// True if a prompt other than a probe's has rows left.
bool is_prefilling(std::span<const SequenceSnapshot> sequences);

/// True if the prompt that is served next arrived after a sequence began to decode. The steps of that sequence may then
/// get only SpareRows::next() more rows. A probe counts as later than every decoding sequence.
bool keeps_decode_pace(std::span<const SequenceSnapshot> sequences);

/// Measurements of an engine's steps.
struct StepMeasures {
  double plain_ms = 0;          // time of a step with these decode rows alone; 0: not measured
  double row_ms = 0;            // time of a prompt row in a step of many rows; 0: not measured
  std::int32_t spare_rows = 0;  // SpareRows::next(), if keeps_decode_pace()
};

struct StepPlan {
  std::vector<std::int32_t> rows;   // rows of each sequence; 0: it does not take part
  std::int32_t min_ahead_rows = 0;  // rows that early prompts may add even if no rows are spare
};

/// Returns the plan of the next step.
StepPlan plan_step(std::span<const SequenceSnapshot> sequences, const StepMeasures& measures,
                   const LocalEngineOptions& options);

/// Returns the number of rows of each sequence in the next step. Every decoding sequence gets its row. Prompts get at
/// most `prompt_rows` rows together. The prompt with the earliest deadline is served first; with equal deadlines, the
/// first in the given order.
std::vector<std::int32_t> share_rows(std::span<const SequenceSnapshot> sequences, std::int32_t prompt_rows);

/// Returns the deadline of a prompt that arrived at `arrival_ms` and takes `alone_ms` on an idle engine. With deadlines
/// at twice that time a short prompt overtakes a long one, and the long one cannot be overtaken forever.
double prompt_deadline(double arrival_ms, double alone_ms);

/// Returns the number of prompt rows of a step with `decoding` rows of sequences whose requests arrived together with
/// the prompts. Prompts have priority, which does not lengthen the total time: the decode rows take a small fraction of
/// the step. 0: the step measures plain_ms.
std::int32_t rows_before_siblings(const StepMeasures& times, std::int32_t decoding, std::int32_t max_rows);

/// Returns the number of prompt rows that a step with `decoding` other rows takes of the `spare` rows that it may add;
/// `pending` rows are left. All rows of a step together fill tiles; unused rows are saved up by the caller.
std::int32_t rows_in_tiles(std::int32_t spare, std::int32_t decoding, std::int32_t pending, std::int32_t max_rows);

/// Returns the number of prompt rows that fill the last tile of a step with `decoding` other rows, or one more tile
/// if those are few: reading the KV of a sequence costs nearly as much for one row as for several. At least 1.
std::int32_t rows_to_fill(std::int32_t decoding, std::int32_t max_rows);

/// The number of rows for which the CPU's matrix product unpacks quantised weights once, with AVX-512; a multiple of
/// that number on other CPUs. With a 0.5B model, a ninth row costs as much as five others.
constexpr std::int32_t kRowTile = 8;

}  // namespace baton
