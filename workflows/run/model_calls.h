// SPDX-License-Identifier: Apache-2.0
// The calls of tools in a model's answer: the host may be asked about each, they run one after another, and what
// follows them in the prompt is made of their results.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "workflows/run/run_parts.h"
#include "workflows/run/turn.h"

namespace baton {

/// What the host said of a call.
struct CallDecision {
  bool allowed = false;
  std::string arguments;  // in place of the model's; empty: its own
  std::string reason;     // why it is denied, for the model; may be empty
};

/// "allow" (or "yes"), "deny" (or "no"), "deny: REASON", or a JSON object of other arguments. Any other text denies the
/// call, and is the reason.
CallDecision read_decision(std::string_view answer);

/// The name of a call for RunOptions::answers: "analyst#2/1".
std::string call_name(const std::string& turn, int call);

/// The calls of one answer. The run's thread only; it must live until `on_end` or `on_suspended` is called, which is
/// the last thing that it does.
class CallRound {
 public:
  struct Hooks {
    std::function<void(const ToolOutcome& outcome, int call)> on_outcome;
    std::function<void(bool asking)> on_asking;     // the host takes its time, and then no more
    std::function<void(PreparedTurn next)> on_end;  // what follows the calls; its `tools` are the outcomes
    std::function<void()> on_suspended;             // the host has no answer yet
  };

  /// `first`: the number of the first call in its turn, from 1. `run` must outlive it.
  CallRound(RunParts& run, CallsInput input, int first, Hooks hooks);

  void begin();

 private:
  const PlannedTurn& turn() const { return *input_.turn; }
  int number(std::size_t call) const { return first_ + static_cast<int>(call); }
  bool needs_host(std::size_t call) const;
  EarlierCall* earlier(std::size_t call);
  std::optional<std::string> known_answer(std::size_t call);
  void forget(const EarlierCall* before);
  Asked question(std::size_t call) const;

  void go_on();
  bool decide();
  void answered(std::optional<std::string> answer, const std::string& error);
  void tell_decision(const std::string& answer);
  void take_decision(const std::string& answer);
  ToolOutcome outcome_without_tool();
  void run_tool();
  bool take(ToolOutcome outcome, bool ran);
  void finish_results();
  void on_results(PreparedTurn made);
  void on_summary(std::size_t outcome, const GenerationResult& result);
  void suspend();
  void end(PreparedTurn next);

  RunParts& run_;
  CallsInput input_;
  const int first_;
  Hooks hooks_;
  std::size_t next_ = 0;                  // the call that is decided on, or runs
  std::optional<CallDecision> decision_;  // on it
  int left_;                              // calls that may still be made
  std::vector<ToolOutcome> outcomes_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;  // while a result is summarised
};

}  // namespace baton
