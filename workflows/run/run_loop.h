// SPDX-License-Identifier: Apache-2.0
// The decisions of a run, as pure functions of its plan and of a snapshot: which turn is ready, which prompt may go to
// the engine, what follows a failure, and when the run is over. The run loop (run_loop.cpp) carries them out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "workflows/plan/plan.h"
#include "workflows/run/run_progress.h"

namespace baton {

/// What an attempt at a turn waits for.
enum class AttemptPhase : std::uint8_t {
  idle,        // nothing
  preparing,   // a worker, which runs tools and builds the prompt
  held,        // the prompts of turns before it, so that the engine gets prompts in the order of the plan
  generating,  // the engine
  calling,     // a worker, which runs tools that the model called
  pausing,     // the end of the pause before the next attempt
  asked,       // an answer of the host, which has none yet
};

/// True if a worker or an engine will report the end of the phase.
bool ends_by_itself(AttemptPhase phase);

/// A run at one moment.
struct RunSnapshot {
  struct Turn {
    TurnProgress::Phase progress = TurnProgress::Phase::waiting;
    AttemptPhase attempt = AttemptPhase::idle;
  };
  std::vector<Turn> turns;    // one for each turn of the plan
  bool ending = false;        // no turn starts any more
  int rounds_judged = 0;      // the workflow's `until` was evaluated after these rounds
  bool rounds_ended = false;  // `until` held
};

/// The next step for a turn that may be waiting.
enum class NextStep : std::uint8_t {
  wait,               // nothing yet
  judge_rounds,       // evaluate `until` after the turn's round before, then decide again
  judge_condition,    // evaluate the turn's condition, then decide again
  skip_after_rounds,  // the rounds ended early
  skip_by_condition,  // its condition does not hold
  wait_for_a_place,   // all its inputs are complete, but max_parallel other turns are running
  start,
};

/// `condition`: whether the turn's condition holds; empty if it has not been evaluated.
NextStep next_step(const Plan& plan, const RunSnapshot& run, std::size_t turn, std::optional<bool> condition = {});

/// True if all turns of the round and of the rounds before are over, but for the deciding turn.
bool round_is_over(const Plan& plan, const RunSnapshot& run, int round);

/// True if the prompt of a turn that is held may go to its engine. If prompts hold the same text, the engine's first
/// computes it and the others get it from there: answers must not depend on which worker was faster. Turns with tools
/// are not waited for.
bool may_submit(const Plan& plan, const RunSnapshot& run, std::size_t turn);

/// True if the run can do nothing more without an answer of the host.
bool waits_for_host(const RunSnapshot& run);

/// True if nothing of the run is left to do but its record.
bool is_over(const RunSnapshot& run);

/// Why an attempt failed.
struct AttemptFailure {
  std::string error;
  ErrorKind kind = ErrorKind::agent;
  bool may_retry = true;
  bool timed_out = false;
};

/// What follows a failed attempt.
struct AfterFailure {
  bool again = false;     // another attempt begins after `pause`
  Milliseconds pause{0};  // doubles from the turn's backoff with each attempt, up to a minute
  bool fallback = false;  // the turn's fallback takes the place of its output
  bool ends_run = false;
};

/// `attempt`: the number of the attempt that failed, from 1.
AfterFailure after_failure(const PlannedTurn& turn, int attempt, bool may_retry, bool run_is_ending);

}  // namespace baton
