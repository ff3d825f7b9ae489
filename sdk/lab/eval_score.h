// SPDX-License-Identifier: Apache-2.0
// Intervals of paired differences and of means over questions (docs/protocol.md).
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sdk/console/options.h"
#include "sdk/lab/dataset.h"
#include "sdk/lab/eval_quality.h"

namespace baton::inline v1::lab {
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

/// What is counted of a method's runs. Counts of several questions can be merged.
struct Tally : ReuseTally {
  double score = 0;  // sum over runs; of a right answer 1, and by F1 also between 0 and 1
  Share right;       // runs of score 1
  std::vector<std::pair<std::string, Share>> right_by_agent;  // agents that have a pattern or schema for their answer
  Share exact;                     // runs whose every answer is that of full, token for token
  std::int64_t anchors_bytes = 0;  // the largest
  double ttft_ms = 0;              // sum over turns
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
