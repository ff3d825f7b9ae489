// SPDX-License-Identifier: Apache-2.0
// What a run would do (baton check --plan), and how long it would take at most, from rates that are measured on this
// machine (docs/cli.md, "Plan").
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <baton/preview.h>
#include <baton/turns.h>

#include <baton/workflow.h>
#include "sdk/console/options.h"

namespace baton::cli {

struct PlanArguments {
  WorkflowArguments workflow;
  InputArguments inputs;
  bool ids = false;
  bool json = false;
  bool estimate = false;
  std::string device = "auto";
  int threads = 0;
};

/// Prints the plan; returns the exit code.
int plan(const PlanArguments& arguments);

/// How fast a model is on this machine.
struct SpeedOfModel {
  std::string model;  // its path
  std::string device;
  int threads = 0;
  double prefill_tokens_per_s = 0;
  std::map<int, double> step_ms;  // a decode step of so many sequences

  /// Between the numbers of sequences that were measured, and beyond them, by the line through two of them.
  double step_of(int sequences) const;
};

/// Of one turn, alone on the machine.
struct TurnEstimate {
  bool known = false;            // false: no prompt, or its model is on a server
  double prompt_ms = 0;          // all of its prompt is computed in its turn
  double least_prompt_ms = 0;    // what is handed over, or computed ahead, takes no time
  double answer_ms = 0;          // as long as max_tokens allows
  std::int64_t handed_over = 0;  // tokens of the prompt that `least_prompt_ms` leaves out
};

struct RunEstimate {
  std::vector<TurnEstimate> turns;  // as Workflow::turns()
  double total_ms = 0;
  double least_total_ms = 0;        // with least_prompt_ms; answers as long as they may be
  std::vector<SpeedOfModel> rates;  // one for each model
  bool whole = true;                // false: a model is on a server
};

/// The largest number of turns of a model that can be under way at the same time, by the model's path.
std::map<std::string, int> most_concurrent(const std::vector<TurnInfo>& turns, const Preview& preview);

/// Turns with the same number of turns before them run concurrently, at most `preview.max_parallel` of them: their
/// prompts are computed one after the other, and their answers in common steps.
RunEstimate estimate(const std::vector<TurnInfo>& turns, const Preview& preview, std::vector<SpeedOfModel> rates);

/// Measures the models of the turns, each at the number of sequences that the workflow may have. Takes a few seconds
/// and more for a large model. Throws ResourceError.
std::vector<SpeedOfModel> speeds_of(const std::vector<TurnInfo>& turns, const Preview& preview,
                                    const std::string& device, int threads, bool quiet);

/// "at most about 1.2 s: 80 ms for the prompt (20 ms where 90 tokens are reused or computed ahead), 1.1 s for the
/// answer".
std::string time_of(const TurnEstimate& turn);

/// The sum, the rates, and what they leave out.
std::string estimate_text(const RunEstimate& estimate);

// Advice on a plan: what is wrong in it, and what would make it cheaper.

/// One sentence for each prompt that does not fit, or may not fit, into its model's context, and for each placeholder
/// that stays empty with these inputs.
std::vector<std::string> plan_warnings(const Workflow& workflow, const std::optional<Preview>& preview,
                                       const std::map<std::string, std::string>& inputs);

/// One sentence for each text that several prompts of a model hold behind different beginnings.
std::vector<std::string> plan_hints(const Workflow& workflow, const std::optional<Preview>& preview);

/// "solver, checker#2", of indices of turns.
std::string names_of(const std::vector<int>& turns, const std::vector<TurnInfo>& all);

}  // namespace baton::cli
