// SPDX-License-Identifier: Apache-2.0
// Tools that the model calls: its answer is calls, they run on a worker, and the same conversation goes on behind their
// results. The next prompt is the prompt before, the ids that were decoded, and the results, so that the engine finds
// the KV of all but the results.
#include "workflows/run/executor_loop.h"

#include <algorithm>

namespace baton {
namespace {

bool all_ok(const std::vector<ToolOutcome>& tools) {
  return std::all_of(tools.begin(), tools.end(), [](const ToolOutcome& tool) { return tool.result.ok; });
}

}  // namespace

bool RunLoop::call_tools(std::size_t turn, const GenerationResult& result) {
  Attempt& attempt = *attempts_[turn];
  const PlannedTurn& planned_turn = planned(turn);
  const bool ended = result.reason == FinishReason::cancelled || result.reason == FinishReason::error;
  if (planned_turn.calls == nullptr || ended || ending_ || request_.forced.contains(planned_turn.id)) return false;
  CallsInput input;
  input.left = planned_turn.calls->limits().max_calls - attempt.calls.calls;
  if (input.left <= 0) return false;
  // A marker may be a special token, which is not in the text.
  const Tokenizer& tokenizer = *attempt.engine->text().tokenizer;
  input.calls = calls_in(attempt.format.enforceable ? result.text : tokenizer.decode(result.tokens, false),
                         attempt.format, *planned_turn.calls);
  if (input.calls.empty()) return false;

  GenerationResult prompt_only = result;  // nobody reads calls
  prompt_only.output = nullptr;
  if (plan_.reuse.record) hand_over_.take(turn, attempt.engine.get(), attempt.submitted, prompt_only);
  ++attempt.calls.generations;
  attempt.calls.calls += static_cast<int>(input.calls.size());
  attempt.calls.record = state_.turn(turn).record;
  attempt.calls.record.tools.clear();
  attempt.calls.context = result.context;
  attempt.calls.prompt = std::move(attempt.submitted);
  if (!result.tokens.empty()) attempt.calls.prompt.push_back({{}, result.tokens});
  attempt.submitted.clear();

  input.turn = &planned_turn;
  input.engine = attempt.engine;
  input.format = attempt.format;
  input.stop = attempt.stop.get_token();
  for (const ModelCall& call : input.calls) {
    const auto made = attempt.calls.made.find({call.tool, call.arguments});
    const bool again = made != attempt.calls.made.end() && !planned_turn.calls->limits().repeat;
    input.known.push_back(again ? std::optional(made->second) : std::nullopt);
    ToolInput& tool = input.tools.emplace_back();
    tool.name = call.tool;
    const CallableTool* known = planned_turn.calls->find(call.tool);
    if (known == nullptr) continue;  // the call has a problem
    tool.tool = known->own ? known->own.get() : tools_->find(call.tool);
    tool.call.options = known->options;
    tool.call.timeout = planned_turn.calls->limits().timeout;
    tool.call.arguments = call.arguments;
    tool.call.stop = input.stop;
  }
  if (input.goes_in_circles()) attempt.calls.calls = planned_turn.calls->limits().max_calls;
  auto called = std::make_shared<PreparedTurn>();
  auto reply = make_task([this, turn, called] { on_called(turn, std::move(*called)); });
  on_worker(run_calls, std::move(input), std::move(called), std::move(reply));
  attempt.phase = Attempt::Phase::calling;
  return true;
}

void RunLoop::on_called(std::size_t turn, PreparedTurn called) {
  Attempt& attempt = *attempts_[turn];
  attempt.phase = Attempt::Phase::idle;
  report(turn, called.tools);
  if (ending_) {
    turn_over(turn, TurnState::cancelled);
  } else if (!attempt.cut.empty()) {
    fail_attempt(turn, {.error = attempt.cut, .timed_out = true});
  } else if (!called.failed_tool.empty()) {
    fail_attempt(turn, {.error = called.failed_tool});
  } else if (!called.error.empty()) {
    fail_attempt(turn, {.error = called.error, .may_retry = false});
  } else if (planned(turn).calls->limits().direct && all_ok(called.tools)) {
    attempt.due.reset();
    GenerationResult result;
    for (const ToolOutcome& tool : called.tools) result.text += (result.text.empty() ? "" : "\n") + tool.result.text;
    AgentRecord& record = state_.turn(turn).record;
    record.output = result.text;
    record.truncated = false;
    std::vector<PromptPart>& prompt = attempt.calls.prompt;  // as if the model had repeated the results
    prompt.insert(prompt.end(), called.prompt.begin(), called.prompt.end());
    result.context = attempt.calls.context;
    accept(turn, std::move(result), prompt);
  } else {
    for (const ToolOutcome& tool : called.tools)
      attempt.calls.made.try_emplace({tool.tool, tool.arguments}, tool.result);
    for (PromptPart& part : called.prompt) attempt.calls.prompt.push_back(std::move(part));
    attempt.calls.constraint = std::move(called.constraint);
    advance(turn);
  }
  schedule();
}

/// The record and the events of tools that have returned.
void RunLoop::report(std::size_t turn, const std::vector<ToolOutcome>& tools) {
  AgentRecord& record = state_.turn(turn).record;
  for (const ToolOutcome& tool : tools) {
    const ToolResult& result = tool.result;
    record.tools.push_back({tool.tool, tool.arguments, result.code, result.ok, result.text, tool.wall_ms,
                            attempts_[turn]->calls.generations});
    emit(ToolCalled{record.agent, record.round, tool.tool, result.ok, result.text, tool.wall_ms, tool.arguments,
                    result.code, record.turn});
  }
}

}  // namespace baton
