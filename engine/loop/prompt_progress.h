// SPDX-License-Identifier: Apache-2.0
// PromptProgress: how far a sequence's prompt has run. It knows the schedule's rows, counts what was computed, and
// falls back to exact rows when the prompt's guard measured too much.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/base/clock.h"
#include "engine/kv/kv_cache.h"
#include "engine/loop/prompt_assembly.h"
#include "engine/model/step.h"
#include "engine/request.h"

namespace baton {

/// Used by the engine's thread only. The request and the result must outlive the object.
class PromptProgress {
 public:
  /// `length`: tokens of the prompt; `layers`: of the model.
  PromptProgress(const GenerationRequest& request, GenerationResult& result, std::int32_t length, std::int32_t layers);

  /// Makes the rows of the assembly's schedule runnable. `cache` holds all KV that is reused.
  void start(PromptAssembly assembly, const PrefillTimes& times, KvCache& cache);
  /// Drops the assembly; start() may be called again.
  void drop();
  const PromptAssembly& assembly() const { return *assembly_; }
  PromptAssembly& assembly() { return *assembly_; }

  /// Number of rows left to run.
  std::int32_t pending() const { return static_cast<std::int32_t>(rows().size() - next_row_); }
  /// True when all rows have run, so that the sequence decodes.
  bool is_complete() const { return assembly_ && next_row_ == rows().size(); }
  /// Adds the next `share` rows to a step, or more if that would split a detection. Returns the number of rows.
  std::int32_t add_rows(std::int32_t share, std::span<const TokenId> tokens, KvCache& cache, StepRows& step);
  /// Reports that the step succeeded. `paths`: the layers that each added row actually ran through.
  void commit(std::span<const RowPath> paths, const StepTimes& times, KvCache& cache);
  /// Replaces the schedule by an exact one from the first approximate token on, when all rows have run and the guard
  /// measured too much. Returns true in that case; the logits of the step are then not those of the prompt.
  bool fall_back(KvCache& cache);

  /// Reports that the sequence takes part in its first step. `submitted`: when its request was submitted.
  void on_step_begin(Clock::time_point now, Clock::time_point submitted);
  /// Calls on_prefill_progress if rows are left, some have run since the prompt began or fell back, and the last call
  /// is at least `interval_ms` ago.
  void report(Clock::time_point now, int interval_ms, const KvCache& cache);
  /// Takes the counts and times of the prompt into the result when the logits of its last token are available. Returns
  /// false when that has been done.
  bool end();
  /// When the logits of the prompt's last token were available.
  Clock::time_point prefilled_at() const { return prefilled_at_; }
  /// See prompt_deadline(). `row_ms`: time of a row.
  double deadline(double row_ms, Clock::time_point submitted) const;

  /// Number of first tokens whose KV was stored as a prefix while the sequence ran.
  std::int32_t stored() const { return stored_; }
  void set_stored(std::int32_t tokens) { stored_ = tokens; }

 private:
  const std::vector<ScheduledRow>& rows() const { return assembly_->schedule.rows; }

  const GenerationRequest& request_;
  GenerationResult& result_;
  std::int32_t length_;
  std::int32_t layers_;
  std::optional<PromptAssembly> assembly_;
  std::size_t next_row_ = 0;                 // index into the schedule
  std::vector<std::size_t> detection_ends_;  // for each detection: the index behind its last row
  SparseLayers sparse_;
  std::vector<std::int32_t> computed_;  // [prompt] number of layers whose KV was computed
  std::vector<bool> recomputed_;        // [prompt] text, or chosen by a detection
  std::int32_t stored_ = 0;
  bool ended_ = false;
  Clock::time_point first_step_{};
  Clock::time_point reported_{};
  Clock::time_point prefilled_at_{};
};

}  // namespace baton
