// SPDX-License-Identifier: Apache-2.0
// Intervals of paired differences and of means over questions (docs/protocol.md).
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/system/file.h"
#include "sdk/console/options.h"
#include "sdk/lab/dataset.h"

#include <baton/baton.h>

namespace baton::inline v1::lab {

using namespace cli;

/// A run's answers as token ids, by turn, and the thinking before them.
struct Trace {
  std::map<std::string, std::vector<std::int32_t>> tokens, thinking;

  /// Fills the trace while a run goes on; the trace must outlive it.
  void record(RunOptions& options, const Workflow& workflow);
  /// A run with these options thinks and answers the same.
  void force(RunOptions& options) const;
};

/// A row of logits and what every comparison with it needs.
struct LogitsRow {
  std::vector<float> logits;  // [V]; empty: in the file of the rows
  std::int64_t offset = 0;    // in that file, in bytes
  double log_sum_exp = 0.0;
  std::size_t likeliest = 0;  // index of the first largest logit
};

/// Full prefill's logits over one question: of the turns that read other agents, by turn, then token; the last row is
/// that of the end. Rows over kMemoryBytes go to a temporary file that has no name, because an answer of a vocabulary
/// of 150,000 tokens has 600 KB of logits a token.
class ReferenceRows {
 public:
  /// `compared`: other runs will be compared with the rows. Otherwise their logits are not kept.
  explicit ReferenceRows(bool compared) : compared_(compared) {}

  /// Fills the rows while a run goes on, from any thread; this object must outlive the run.
  void record(RunOptions& options, const Workflow& workflow);

  /// Computes the rest of each row when the run has ended: it would lengthen the run's engine steps. Throws Failure
  /// (kResources) when rows could not be written to the temporary file or read from it.
  void complete();

  /// Returns the logits of a row, read into `memory` where they are in the file; empty when they cannot be read. From
  /// any thread.
  std::span<const float> logits(const LogitsRow& row, std::vector<float>& memory) const;

  static constexpr std::size_t kMemoryBytes = std::size_t{128} << 20;

  const std::map<std::string, std::vector<LogitsRow>>& turns() const { return turns_; }

 private:
  bool compared_;
  std::set<std::string> readers_;  // the turns that read other agents
  void store(LogitsRow& row, std::span<const float> logits);

  std::mutex mutex_;
  std::size_t memory_bytes_ = 0;
  std::size_t vocabulary_ = 0;
  UniqueFd file_;
  std::int64_t file_bytes_ = 0;
  std::string problem_;  // of the file, or empty
  std::map<std::string, std::vector<LogitsRow>> turns_;
};

/// How far the distributions of one turn's answer are from full prefill's.
struct TurnDistance {
  std::vector<double> kl;     // of each token, in nats
  std::int64_t agreeing = 0;  // tokens that both would have chosen, greedily
  double guard = -1.0;        // AgentRecord::guard_change
};

/// The distances of one run over one question, by turn.
using Distances = std::map<std::string, TurnDistance>;

/// Compares a run that is forced to full prefill's answers with it, row by row as the rows come.
class Comparison {
 public:
  /// `reference` must outlive this object and be complete.
  explicit Comparison(const ReferenceRows& reference) : reference_(reference) {}

  /// Measures while a run goes on, from any thread; this object must outlive the run.
  void record(RunOptions& options);

  Distances take() { return std::move(distances_); }

 private:
  const ReferenceRows& reference_;
  std::mutex mutex_;
  Distances distances_;
  std::map<std::string, std::vector<float>> memory_;  // by turn: for a row of the reference that is read from the file
};

/// The distances of full prefill from itself: 0, with all tokens agreeing.
Distances no_distances(const ReferenceRows& reference);

/// Sums over turns; the values are means.
class Quality {
 public:
  void add(const Distances& distances, const Workflow& workflow);

  double kl_first_token() const { return first_ == 0 ? 0.0 : kl_first_ / static_cast<double>(first_); }
  double kl_mean() const { return positions_ == 0 ? 0.0 : kl_ / static_cast<double>(positions_); }
  /// Fraction of tokens that the method would have chosen as well, greedily.
  double agreement() const {
    return positions_ == 0 ? 0.0 : static_cast<double>(agreeing_) / static_cast<double>(positions_);
  }
  std::int64_t positions() const { return positions_; }
  /// Fraction of turns whose mean KL is at most kTolerance.
  double within_tolerance() const {
    return first_ == 0 ? 0.0 : static_cast<double>(within_) / static_cast<double>(first_);
  }

  static constexpr double kTolerance = 0.02;  // nats

 private:
  double kl_ = 0.0;
  double kl_first_ = 0.0;
  std::int64_t positions_ = 0;
  std::int64_t first_ = 0;
  std::int64_t agreeing_ = 0;
  std::int64_t within_ = 0;
};

/// The sum of the KL over all tokens of one question, and their number.
std::pair<double, std::int64_t> total_of(const Distances& distances);

using namespace cli;

struct Interval {
  double low = 0.0;
  double high = 0.0;
};

/// The 95 % interval of the difference of two paired proportions by Newcombe's method 10 (Statistics in Medicine 17,
/// 1998): Wilson's intervals of both, with the correlation of the pairs. `both`, `first`, `second`, `neither`: numbers
/// of pairs in which both succeed, only the first, only the second, and none. The difference is first minus second.
Interval newcombe_interval(std::int64_t both, std::int64_t first, std::int64_t second, std::int64_t neither);

/// The 95 % percentile bootstrap interval of sum(values) / sum(weights): `draws` draws of pairs (value, weight) with
/// replacement. The same arguments give the same interval on every machine. {0, 0} without weight.
Interval bootstrap_interval(std::span<const double> values, std::span<const double> weights, int draws = 2000,
                            std::uint64_t seed = 0);

// A method to measure, as the user writes it: "rectify", "epic:epic_tokens=32",
// "rectify:select.share=0.2;select.suffix=0".

struct EvalMethod {
  std::string text;  // as written
  std::string name;
  std::vector<std::pair<std::string, std::string>> settings;  // of `relay`

  /// The method reuses nothing, so that others are compared with it.
  bool is_reference() const;

  /// What the method reuses in a question depends on the questions before it.
  bool remembers_questions() const;

  /// Throws Failure naming what is wrong.
  static EvalMethod parse(const std::string& text);

  /// The workflow with this method: short segments are reused too, and no prefixes, which other methods leave behind.
  Workflow load(const WorkflowArguments& arguments, const std::string& pool = {}) const;
  /// The workflow with this method and, but for its settings, as `baton run` runs it.
  Workflow load_as_run(const WorkflowArguments& arguments) const;

 private:
  Workflow load_with(WorkflowArguments changed, const WorkflowArguments& arguments) const;
};

// The results of a method over a dataset: right answers, distances from full prefill, reused KV.

struct Share {
  std::int64_t part = 0;
  std::int64_t whole = 0;
  void count(bool hit) { add(hit ? 1 : 0, 1); }
  void add(std::int64_t more, std::int64_t of) {
    part += more;
    whole += of;
  }
  double value() const { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0; }
};

/// How much of the turns' KV a method did not compute.
struct ReuseTally {
  Share reused_entries;     // (token, layer) entries of prompts
  Share ahead_entries;      // of prompts but the first turn's: computed before the turn began
  Share relayed_entries;    // of the placeholders that came from a segment
  Share relayed_bound;      // the same, had the method chosen no token to be recomputed
  Share long_entries;       // of those with kLongTokens tokens or more
  Share recomputed_tokens;  // of those placeholders
  Share reused_turns;       // turns that computed no placeholder in full
  Share warm_reused_turns;  // of questions behind the first kWarmUp

  static constexpr std::int64_t kLongTokens = 100;
  static constexpr std::size_t kWarmUp = 50;

  /// `first`: it is the first turn of its run. `index`: of the question in the order in which they are asked.
  void add(const AgentRecord& turn, bool first, std::size_t index);
  void merge(const ReuseTally& other);
};

extern const char* const kMethodBytes;  // the name of Tally::method_bytes in JSON

/// What is counted of a method's runs. Counts of several questions can be merged.
struct Tally : ReuseTally {
  double score = 0;  // sum over runs; of a right answer 1, and by F1 also between 0 and 1
  Share right;       // runs of score 1
  std::vector<std::pair<std::string, Share>> right_by_agent;  // agents that have a pattern or schema for their answer
  Share exact;                    // runs whose every answer is that of full, token for token
  std::int64_t method_bytes = 0;  // what the method has learned, the largest
  double ttft_ms = 0;             // sum over turns
  std::int64_t turns = 0;
  std::int64_t output_tokens = 0;
  std::int64_t failed = 0;  // runs that did not end well
  double wall_ms = 0;       // sum over runs
};

/// The counts of one run. `index`: of the question in the order in which they are asked.
Tally tally_of(const Workflow& workflow, const Question& question, std::size_t index, const RunRecord& record);
/// Both must have the same agents.
Tally sum_of(Tally tally, const Tally& other);

/// One question, under one method and under full.
struct QuestionScore {
  double score = 0.0;
  double full = 0.0;
  double kl = 0.0;          // sum over tokens
  std::int64_t tokens = 0;  // compared
};

/// What pairs of questions say about the difference to full.
struct PairedScore {
  double difference = 0.0;  // of the mean scores, method minus full
  Interval interval;        // of the difference
  std::int64_t wins = 0;    // questions with a higher score than full's
  std::int64_t losses = 0;
  Interval kl;  // of the mean KL
};

/// One method with one number of agents.
struct Score {
  EvalMethod method;
  std::optional<Workflow> workflow;
  std::optional<Workflow> forced_workflow;  // with pools of its own: it must not meet the answers of the free run
  Tally tally;
  Quality quality;  // over forced runs
  std::vector<QuestionScore> questions;
  bool binary = true;  // every score is 0 or 1
  bool free = true;    // there are free runs: otherwise the answers are full's, and only distributions are measured
};

/// Differences to full: of accuracies by Newcombe's method where scores are 0 or 1, otherwise by bootstrap.
PairedScore paired(const Score& score);

/// The counts that a method begins with: none, for each agent that has an answer.
Tally empty_tally(const Workflow& workflow);

/// The agents that have a turn, in the order of their first.
std::vector<std::string> agents_at_work(const Workflow& workflow);

/// The run's answer: what the pattern of the agent that answers found; without a pattern the output `answer`, or all
/// that the agent said.
std::string final_answer(const Workflow& workflow, const RunRecord& record);

nlohmann::ordered_json json_of(const Score& score);

/// One line a method, under one head; `floor` may be null. A second table has what matters to some methods only.
std::string table_of(const std::vector<Score>& scores, const Quality* floor);

/// How each placeholder will be handed over, under the file's own relay (what `run` would do) and under each method,
/// and which settings of the file `eval` replaces.
std::string hand_overs_of(const Workflow& file, const std::vector<Score>& scores);

/// The right answers of each agent, one line a method.
std::string agents_of(const std::vector<Score>& scores);

}  // namespace baton::inline v1::lab
