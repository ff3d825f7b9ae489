// SPDX-License-Identifier: Apache-2.0
// EvalMeasurement: every question with every method, and the same texts again for their distributions.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "sdk/lab/eval_log.h"

namespace baton::inline v1::lab {
using namespace cli;

struct EvalOptions {
  WorkflowArguments workflow;
  EngineArguments engine;
  int jobs = 8;
  std::size_t floor_limit = 50;
  std::optional<std::uint64_t> seed;
  std::string timeout;
  std::string answers;       // a file for what every agent said, as token ids; empty: none
  std::string resume;        // a file of finished questions, which is continued; empty: none
  bool forced_only = false;  // no free runs: divergences alone
  bool quiet = false;
  bool verbose = false;
};

/// One line, drawn anew, in a terminal; otherwise a line now and then.
class EvalProgress {
 public:
  EvalProgress(bool shown, std::size_t questions) : shown_(shown), questions_(questions) {}

  /// `done`: questions in all; `taken`: those of them that an earlier run had finished.
  void show(const std::vector<Score>& scores, std::size_t done, std::size_t taken);
  /// Makes room for a line above.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_;
  std::size_t questions_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
};

/// Runs every question with every method, `jobs` questions at a time, so that their agents share the engine's steps.
/// Outcomes are added up in the order of the questions, so that the sums do not depend on which job was faster.
/// The methods take turns question by question, so that disturbances of the machine affect all methods alike. Each of
/// the `jobs` holds the logits of one answer of full prefill in memory; those of other runs are reduced as they come.
class EvalMeasurement {
 public:
  /// `scores` has everything filled in except the numbers; `scores` and `questions` must outlive this object.
  /// `log`: takes the finished questions of the team of this size, and may hold some; null: they are not kept.
  EvalMeasurement(const EvalOptions& options, const Engine& engine, std::vector<Score>& scores,
                  const std::vector<Question>& questions, EvalLog* log, int team);

  void run();

  /// Null where no method was compared with full.
  const Quality* noise_floor() const { return precise_ ? &floor_ : nullptr; }

 private:
  struct Outcome;

  void work();
  RunOptions options_for(const Question& question) const;
  std::optional<Outcome> compare(const Engine& engine, const Workflow& workflow, const Question& question,
                                 const Trace& answers, const ReferenceRows& rows) const;
  std::optional<Outcome> run_method(const Score& score, const Question& question, const Trace& answers,
                                    const ReferenceRows& rows) const;
  std::optional<QuestionOutcome> measure(const Question& question, std::size_t index);
  void finish(std::size_t index, QuestionOutcome outcome);
  void merge(std::size_t index, const QuestionOutcome& outcome);
  void keep(const Question& question, const Score& score, const Trace& trace);

  const EvalOptions& options_;
  const Engine& engine_;
  std::vector<Score>& scores_;
  const std::vector<Question>& questions_;
  EvalLog* log_;
  int team_;
  std::optional<Workflow> reference_;
  std::optional<Engine> precise_;  // full prefill with the KV cache in f32: how far rounding alone goes
  bool compares_ = false;          // some method is compared with full
  RunOptions base_;
  std::optional<LineFile> answers_;

  std::mutex mutex_;
  EvalProgress progress_;
  Quality floor_;
  std::size_t next_ = 0;
  std::vector<bool> taken_;                       // questions that an earlier run had finished
  std::map<std::size_t, QuestionOutcome> ahead_;  // outcomes that wait for those of earlier questions
  std::size_t merged_ = 0;                        // questions whose outcomes are in the scores
  std::size_t done_ = 0;
  std::size_t taken_count_ = 0;
  std::exception_ptr error_;
};

}  // namespace baton::inline v1::lab
