// SPDX-License-Identifier: Apache-2.0
// How a dataset is measured under each method, and the file in which each finished question is kept, so that a table
// can be continued.
#pragma once

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/system/file.h"
#include "sdk/lab/eval_score.h"

namespace baton::inline v1::lab {
using namespace cli;

/// Not safe from several threads at once.
class LineFile {
 public:
  /// Opens the file behind its end, or makes it. `name` stands for it in errors: "--resume log.jsonl". Throws Failure
  /// with kUsage.
  LineFile(std::string name, const std::string& path);

  /// Appends the line and its end. Throws Failure with kRunFailed when not all of it can be written; the part that
  /// could be is removed.
  void add(std::string_view line);

 private:
  std::string name_;
  UniqueFd file_;
};

// EvalLog: the finished questions of an evaluation in a file, so that an interrupted one can be continued. The file is
// JSON Lines: the settings, then one line for each question (docs/lab.md, `baton-lab eval --resume`).

/// What one method did with one question.
struct MethodOutcome {
  Tally tally;
  Distances distances;
};

/// What all methods did with one question.
struct QuestionOutcome {
  std::string model;                   // fingerprint
  double full_score = 0.0;             // of full's answer, which the others are compared with
  std::vector<MethodOutcome> methods;  // in the order of the table
  std::optional<Distances> floor;      // of the noise floor, where it was measured
};

/// Not safe from several threads at once.
class EvalLog {
 public:
  /// Reads `path`, or begins it when it does not exist or is empty. What stands behind the last whole line was cut off
  /// while it was written, and is dropped. Throws Failure when the file is not of an evaluation (it is left unchanged),
  /// when its settings are others (naming them), for a damaged line (FILE:LINE), and when it cannot be written.
  EvalLog(std::string path, const nlohmann::ordered_json& settings);

  /// Removes and returns the outcome of a question that the file held. `team`: the size given by --agents; 0: as the
  /// workflow has it. `methods`: the table's methods in their order; throws Failure when the outcome has others.
  std::optional<QuestionOutcome> take(int team, const std::string& question, const std::vector<Score>& methods);

  /// Appends a line and flushes it. Throws Failure when it cannot be written, or when another model answered the
  /// questions so far.
  void add(int team, const std::string& question, const QuestionOutcome& outcome);

 private:
  void read_line(const std::string& line, std::size_t number);
  void check_model(const std::string& model);

  std::string path_;
  std::string model_;  // fingerprint of the first outcome's
  std::map<std::pair<int, std::string>, QuestionOutcome> outcomes_;
  std::optional<LineFile> file_;
};

/// 64 bits of a text as hexadecimal digits (FNV-1a): tells a changed file from an equal one.
std::string digest(const std::string& text);

}  // namespace baton::inline v1::lab

namespace baton::inline v1::lab {

// EvalMeasurement: every question with every method, and the same texts again for their distributions.

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

  /// One more question is done; `taken`: an earlier run had finished it.
  void count(bool taken);
  std::size_t done() const { return done_; }
  void show(const std::vector<Score>& scores);
  /// Makes room for a line above.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool shown_;
  std::size_t questions_;
  std::size_t done_ = 0;
  std::size_t taken_ = 0;  // those of them that an earlier run had finished
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_;
};

/// The questions that are still to be asked, in their order.
class QuestionQueue {
 public:
  explicit QuestionQueue(std::size_t questions) : taken_(questions, false) {}

  /// An earlier run has finished the question.
  void leave_out(std::size_t index) { taken_[index] = true; }
  /// The next question; nothing: all are taken, or one has failed.
  std::optional<std::size_t> next();
  /// Ends the queue. The first failure is kept, unless a later one is `more_telling`.
  void fail(std::exception_ptr error, bool more_telling = false);
  void rethrow_failure() const;

 private:
  std::vector<bool> taken_;
  std::size_t next_ = 0;
  std::exception_ptr error_;
};

/// Adds outcomes up in the order of the questions, so that the sums do not depend on which job was faster.
class OrderedScores {
 public:
  /// `scores` and `questions` must outlive this object. `reference`: the workflow under full prefill.
  OrderedScores(std::vector<Score>& scores, const std::vector<Question>& questions, Workflow reference)
      : scores_(scores), questions_(questions), reference_(std::move(reference)) {}

  /// Adds a question to the scores, and those behind it that waited for it.
  void add(std::size_t index, QuestionOutcome outcome);
  /// Adds what still waits, since questions before it were never finished.
  void add_rest();
  const std::vector<Score>& scores() const { return scores_; }
  const Workflow& reference() const { return reference_; }
  const Quality& floor() const { return floor_; }

 private:
  void merge(std::size_t index, const QuestionOutcome& outcome);

  std::vector<Score>& scores_;
  const std::vector<Question>& questions_;
  Workflow reference_;
  Quality floor_;
  std::map<std::size_t, QuestionOutcome> ahead_;  // outcomes that wait for those of earlier questions
  std::size_t merged_ = 0;                        // questions whose outcomes are in the scores
};

/// Runs every question with every method, `jobs` questions at a time, so that their agents share the engine's steps.
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
  const Quality* noise_floor() const { return precise_ ? &sums_.floor() : nullptr; }

 private:
  struct Outcome;

  void work();
  RunOptions options_for(const Question& question) const;
  std::optional<Outcome> compare(const Engine& engine, const Workflow& workflow, const Question& question,
                                 const Trace& answers, const ReferenceRows& rows) const;
  std::optional<Outcome> run_method(const Score& score, const Question& question, const Trace& answers,
                                    const ReferenceRows& rows) const;
  std::optional<QuestionOutcome> measure(const Question& question, std::size_t index);
  /// Whether some method is compared with full.
  bool compares() const { return sums_.scores().size() > 1 || !sums_.scores().front().method.is_reference(); }
  void keep(const Question& question, const Score& score, const Trace& trace);

  const EvalOptions& options_;
  const Engine& engine_;
  const std::vector<Question>& questions_;
  EvalLog* log_;
  int team_;
  std::optional<Engine> precise_;  // full prefill with the KV cache in f32: how far rounding alone goes
  RunOptions base_;
  std::optional<LineFile> answers_;

  std::mutex mutex_;
  EvalProgress progress_;
  QuestionQueue queue_;
  OrderedScores sums_;
};

}  // namespace baton::inline v1::lab
