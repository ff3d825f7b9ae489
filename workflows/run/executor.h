// SPDX-License-Identifier: Apache-2.0
// Executor: runs a plan. Starts each turn when its needs are over, in the engine's shared steps; calls tools; applies
// retries, timeouts, conditions, early stops.
#pragma once

#include <baton/event.h>
#include <baton/run_record.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "agents/prompts/conversation.h"
#include "agents/tools/tool.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "workflows/plan/plan.h"

namespace baton {

/// What the agents of a session remember, by agent.
using SessionMemory = std::map<std::string, std::shared_ptr<const Conversation>>;

struct RunRequest {
  std::shared_ptr<const Plan> plan;
  std::map<std::string, std::shared_ptr<InferenceEngine>> engines;  // engines of the plan's models, by ModelSpec name
  std::shared_ptr<const ToolRegistry> tools;
  std::map<std::string, std::string> inputs;  // complete: complete_inputs (workflows/run/inputs.h)
  std::optional<std::uint64_t> seed;          // takes precedence over the workflow's
  /// What chat templates show as now (ChatOptions::local_seconds); none: the clock's time of each prompt.
  std::optional<std::int64_t> local_seconds;
  Milliseconds timeout{0};               // limit of the whole run; 0: none
  std::optional<Clock::time_point> due;  // when it has passed; without a value, it counts from the run's beginning
  std::stop_token stop;                  // ends the run soon, keeping what it has; state "cancelled"
  EventCallback on_event;
  std::vector<AgentFinished> finished;  // turns of an earlier run, which are over when this run begins
  /// RunOptions::on_ask and answers.
  std::function<std::optional<std::string>(const Asked& asked, const std::stop_token& stop)> on_ask;
  std::map<std::string, std::string> answers;
  std::vector<EarlierCall> calls;                               // RunOptions::calls
  std::function<std::vector<ServerRecord>()> servers;           // asked at the end; null: there are none
  std::string unready;                                          // why no turn can start; empty: they can
  std::vector<Warning> warnings;                                // from before the run began
  std::map<std::string, std::vector<TokenId>> forced;           // by turn id: the turn's answer is these tokens
  std::map<std::string, std::vector<TokenId>> forced_thinking;  // and its thinking these; without it, it does not think
  /// Called before each token of a turn with the logits [V] that it is chosen from, on the engine's thread,
  /// concurrently for several turns.
  std::function<void(const std::string& turn, std::span<const float> logits)> on_logits;
  std::optional<int> top_logprobs;  // RunOptions::top_logprobs
  /// Called with the prompt of each attempt of a turn as it was submitted, on the run's thread: its text with special
  /// tokens, and its ids. There are no ids if the model is on a server that reads messages.
  std::function<void(const std::string& turn, std::string text, std::vector<TokenId> ids)> on_prompt;
  SessionMemory memory;  // what the session's earlier runs left
  /// Called once, at the end, with what the agents remember now; null: the run did not end well, or memory was short,
  /// and nothing of it is remembered. Without it the run belongs to no session. Must not throw.
  std::function<void(const SessionMemory* memory)> on_memory;
  // For the record.
  std::string version;      // the library's version
  double load_ms = 0.0;     // opening the engines
  double measure_ms = 0.0;  // measuring their models
};

/// Returns why `finished` cannot be turns of a run of the plan; empty: they can.
std::string check_finished(const Plan& plan, const std::vector<AgentFinished>& finished);

class RunProgress;

/// Takes a turn of an earlier run over, which check_finished has passed.
void restore_turn(RunProgress& progress, const RunRequest& request, const AgentFinished& finished);

/// Runs to the end on the calling thread and returns the record; failures of agents are in the record, never thrown.
/// Throws std::invalid_argument for a model without an engine (before anything starts), unless the run is stopped or
/// its time has passed already. Any number of runs at once. After the return no callback is made, and no request of the
/// run is left in an engine.
///
/// - A turn's timeout covers one attempt, its tools included.
/// - An attempt fails when the engine fails, the timeout passes, or the output does not fit output.pattern, schema,
/// enum,
///   regex or grammar; with output.required: false the last attempt's output is kept then, with a warning and without
///   an answer. A failure that would recur (a prompt that is too long) is not retried. Pauses double from retry.backoff
///   to at most a minute.
/// - on_error fail ends the run, with state "timeout" after a timeout; with skip, placeholders downstream are empty.
/// - The deciding turn sees the last output of each agent; all other turns see the round that they name.
/// - on_event is called on the calling thread. If it throws, the run ends as failed and it is not called again.
RunRecord run_plan(const RunRequest& request);

enum class MissingInputs : std::uint8_t {
  refused,   // for a run
  left_out,  // for a preview, which shows them as unknown
};

/// Every input that the workflow declares, by name: the given text, the default, or an empty text for one that is not
/// required. Throws InputError for an unknown input, with the names that there are, for missing ones, for a value that
/// is not UTF-8, which a record could not hold, and for one that is not a list of messages although it must be.
std::map<std::string, std::string> complete_inputs(const WorkflowSpec& spec,
                                                   const std::map<std::string, std::string>& given,
                                                   MissingInputs missing = MissingInputs::refused);

/// The plan of a run with these inputs, which complete_inputs returned: its prompts have the messages of inputs. Inputs
/// that are left out stand for none. Throws InputError for a prompt that has no message left.
std::shared_ptr<const Plan> with_messages(std::shared_ptr<const Plan> plan,
                                          const std::map<std::string, std::string>& inputs);

}  // namespace baton
