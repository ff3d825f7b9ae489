// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/model_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/base/errors.h"
#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/base/utf8.h"
#include "engine/text/schema/schema.h"
#include "workflows/run/record.h"

namespace baton {
namespace {

constexpr std::size_t kMaxReason = 1000;  // bytes
constexpr const char* kUnknownOutcome =
    "error: this call was begun before the run was interrupted. Its outcome is unknown, and it was not repeated";

bool is_object(std::string_view text) {
  try {
    return read_json(text)->is_object();
  } catch (const JsonError&) {
    return false;
  }
}

}  // namespace

CallDecision read_decision(std::string_view answer) {
  const std::string_view said = utf8::trimmed(answer);
  if (said == "allow" || said == "yes") return {.allowed = true};
  if (said == "deny" || said == "no" || said.empty()) return {};
  if (is_object(said)) return {.allowed = true, .arguments = std::string(said)};
  constexpr std::string_view kDeny = "deny:";
  const std::string_view reason = said.starts_with(kDeny) ? utf8::trimmed(said.substr(kDeny.size())) : said;
  return {.reason = beginning(std::string(reason), kMaxReason)};
}

std::string call_name(const std::string& turn, int call) { return fmt::format("{}/{}", turn, call); }

CallRound::CallRound(RunParts& run, CallsInput input, int first, Hooks hooks)
    : run_(run), input_(std::move(input)), first_(first), hooks_(std::move(hooks)), left_(input_.left) {}

/// All questions are put before any is waited for, so that a host can answer them together.
void CallRound::begin() {
  for (std::size_t i = 0; i < input_.calls.size(); ++i) {
    if (needs_host(i) && !known_answer(i)) run_.events.emit(question(i));
  }
  go_on();
}

/// True if the call is one that the host has to be asked about.
bool CallRound::needs_host(std::size_t call) const {
  const bool runs = input_.calls[call].problem.empty() && !input_.known[call] && static_cast<int>(call) < input_.left;
  return runs && turn().calls->limits().needs_approval(input_.calls[call].tool);
}

/// What an earlier run of the same turn did with this call; null: it did not come to it.
EarlierCall* CallRound::earlier(std::size_t call) {
  const ModelCall& wanted = input_.calls[call];
  const auto found = std::find_if(run_.earlier_calls.begin(), run_.earlier_calls.end(), [&](const EarlierCall& one) {
    return one.turn == turn().id && one.tool == wanted.tool && one.arguments == wanted.arguments;
  });
  return found == run_.earlier_calls.end() ? nullptr : &*found;
}

/// An answer counts for the call that it was given for. A call of the same number that is another one now is asked
/// about again.
std::optional<std::string> CallRound::known_answer(std::size_t call) {
  EarlierCall* before = earlier(call);
  if (before != nullptr && before->answer) return before->answer;
  const auto given = run_.request.answers.find(call_name(turn().id, number(call)));
  if (given == run_.request.answers.end()) return std::nullopt;
  const bool another = std::any_of(run_.earlier_calls.begin(), run_.earlier_calls.end(), [&](const EarlierCall& one) {
    return one.turn == turn().id && one.call == number(call) && &one != before;
  });
  return another ? std::nullopt : std::optional(given->second);
}

Asked CallRound::question(std::size_t call) const {
  const ModelCall& asked = input_.calls[call];
  Asked question{turn().agent, turn().round, {}};
  question.question = fmt::format(
      "agent '{}' wants to call {} with {}\nallow, deny, deny: REASON, or other arguments as "
      "a JSON object?",
      turn().id, asked.tool, asked.arguments);
  question.turn = call_name(turn().id, number(call));
  question.tool = asked.tool;
  question.arguments = asked.arguments;
  return question;
}

void CallRound::go_on() {
  while (next_ < input_.calls.size()) {
    if (run_.ending) return end({});
    if (!decide()) return;
    const bool runs = input_.calls[next_].problem.empty() && !input_.known[next_] && left_ > 0;
    const EarlierCall* before = runs ? earlier(next_) : nullptr;
    if (runs && decision_->allowed && (before == nullptr || !before->begun)) return run_tool();
    const bool ran = before != nullptr && before->result && decision_->allowed;
    if (!take(outcome_without_tool(), ran)) return;
  }
  finish_results();
}

void CallRound::finish_results() {
  auto made = std::make_shared<PreparedTurn>();
  run_on_worker(run_, after_results, ResultsInput{input_, outcomes_, left_}, made,
                make_task([this, made] { on_results(std::move(*made)); }));
}

/// A model summarises a result for which there is no room: the turn's own, or that of PlannedTurn::summary.
void CallRound::on_results(PreparedTurn made) {
  if (!made.to_summarise || run_.ending) return end(std::move(made));
  const std::size_t outcome = *made.to_summarise;
  GenerationRequest request;
  request.prompt = std::move(made.summary_prompt);
  request.max_tokens = kSummaryTokens;
  if (const PlannedTurn* writer = turn().summary.get()) {
    request.max_tokens = writer->max_tokens;
    request.stop = writer->stop;
    request.sampling = writer->sampling;
    request.sampling.seed = attempt_seed(run_.request.seed.value_or(writer->sampling.seed),
                                         call_name(turn().id + "/summary", number(outcome)), 1);
  }
  auto result = std::make_shared<GenerationResult>();
  auto reply =
      std::make_shared<std::unique_ptr<Task>>(make_task([this, outcome, result] { on_summary(outcome, *result); }));
  request.callbacks.on_finished = [mailbox = run_.mailbox, result, reply](GenerationResult summary) {
    *result = std::move(summary);
    mailbox->post(std::move(*reply));
  };
  try {
    const std::shared_ptr<InferenceEngine>& engine = input_.summary_engine ? input_.summary_engine : input_.engine;
    const RequestId id = engine->submit(std::move(request));
    on_stop_.emplace(input_.stop, [engine, id] { engine->cancel(id); });
  } catch (const std::exception&) {  // the result is cut
    outcomes_[outcome].summary.emplace();
    finish_results();
  }
}

void CallRound::on_summary(std::size_t outcome, const GenerationResult& result) {
  on_stop_.reset();
  if (run_.ending || input_.stop.stop_requested()) return end({});
  const bool written = result.reason != FinishReason::error && result.reason != FinishReason::cancelled;
  outcomes_[outcome].summary = written ? std::string(utf8::trimmed(result.text)) : std::string();
  finish_results();
}

/// Returns false if the host is asked, or has no answer.
bool CallRound::decide() {
  if (decision_) return true;
  if (!needs_host(next_)) {
    decision_ = CallDecision{.allowed = true};
    return true;
  }
  if (const std::optional<std::string> answer = known_answer(next_)) {
    const EarlierCall* before = earlier(next_);
    if (before == nullptr || !before->answer) tell_decision(*answer);
    take_decision(*answer);
    return true;
  }
  if (!run_.request.on_ask) {
    suspend();
    return false;
  }
  struct Reply {
    std::optional<std::string> answer;
    std::string error;
  };
  auto reply = std::make_shared<Reply>();
  auto task = make_task([this, reply] { answered(std::move(reply->answer), reply->error); });
  hooks_.on_asking(true);
  run_.workers->post(make_task([mailbox = run_.mailbox, &ask = run_.request.on_ask, asked = question(next_),
                                stop = input_.stop, reply, task = std::move(task)]() mutable {
    try {
      reply->answer = ask(asked, stop);
    } catch (const std::exception& error) {
      if (!try_to([&] { reply->error = message_of(error); })) reply->error = "out of memory";
    } catch (...) {
      reply->error = "on_ask threw something other than an exception";
    }
    reply.reset();
    mailbox->post(std::move(task));
  }));
  return false;
}

void CallRound::answered(std::optional<std::string> answer, const std::string& error) {
  hooks_.on_asking(false);
  if (run_.ending) return end({});
  if (!error.empty()) {
    PreparedTurn failed;
    failed.error = error;
    return end(std::move(failed));
  }
  if (!answer) return suspend();
  tell_decision(*answer);
  take_decision(*answer);
  go_on();
}

void CallRound::tell_decision(const std::string& answer) {
  const ModelCall& call = input_.calls[next_];
  run_.events.emit(
      CallDecided{turn().agent, turn().round, turn().id, number(next_), call.tool, call.arguments, answer});
}

/// Other arguments must fit the tool's schema, as the model's must.
void CallRound::take_decision(const std::string& answer) {
  decision_ = read_decision(answer);
  if (decision_->arguments.empty()) return;
  const CallableTool* tool = turn().calls->find(input_.calls[next_].tool);
  const std::string wrong = tool == nullptr ? "" : check_json(decision_->arguments, tool->schema.parameters);
  if (wrong.empty()) return;
  run_.events.warn(turn(), WarningCode::call_denied,
                   fmt::format("the host's arguments for {} do not fit its schema: {}; the call is denied",
                               input_.calls[next_].tool, wrong));
  decision_ = CallDecision{};
}

ToolOutcome CallRound::outcome_without_tool() {
  const ModelCall& call = input_.calls[next_];
  ToolOutcome outcome{call.tool, call.arguments, {false, "error: " + call.problem}, 0.0};
  if (input_.known[next_]) {
    outcome.result = *input_.known[next_];
  } else if (left_ <= 0) {
    outcome.result.text = fmt::format("error: no more than {} calls are allowed", turn().calls->limits().max_calls);
  } else if (call.problem.empty() && !decision_->allowed) {
    outcome.result.text = "error: the user does not allow this call" +
                          (decision_->reason.empty() ? std::string() : ": " + decision_->reason);
  } else if (call.problem.empty()) {
    EarlierCall* before = earlier(next_);
    outcome.result = before->result.value_or(ToolResult{false, kUnknownOutcome});
    forget(before);
  }
  return outcome;
}

/// A call of this run stands for it from here on.
void CallRound::forget(const EarlierCall* before) {
  if (before != nullptr) run_.earlier_calls.erase(run_.earlier_calls.begin() + (before - run_.earlier_calls.data()));
}

void CallRound::run_tool() {
  forget(earlier(next_));
  ToolInput tool = input_.tools[next_];
  if (!decision_->arguments.empty()) tool.call.arguments = decision_->arguments;
  run_.events.emit(
      CallBegun{turn().agent, turn().round, turn().id, number(next_), tool.name, input_.calls[next_].arguments});
  auto made = std::make_shared<PreparedTurn>();
  run_on_worker(run_, run_call, std::move(tool), made, make_task([this, made] {
                  if (!made->error.empty()) return end(std::move(*made));
                  ToolOutcome outcome = std::move(made->tools.front());
                  if (!decision_->arguments.empty() && outcome.result.ok)
                    outcome.result.text = fmt::format("(the user changed the arguments to {})\n{}",
                                                      decision_->arguments, outcome.result.text);
                  if (take(std::move(outcome), true)) go_on();
                }));
}

/// Notes what came of a call. Returns false if it ends the attempt: this may be gone then.
bool CallRound::take(ToolOutcome outcome, bool ran) {
  decision_.reset();
  hooks_.on_outcome(outcome, number(next_));
  --left_;
  ++next_;
  outcomes_.push_back(std::move(outcome));
  if (!ran || outcomes_.back().result.ok || !turn().calls->limits().fail) return true;
  PreparedTurn failed;
  failed.failed_tool = failure_of(outcomes_.back());
  end(std::move(failed));
  return false;
}

void CallRound::suspend() {
  const auto on_suspended = std::move(hooks_.on_suspended);
  on_suspended();
}

void CallRound::end(PreparedTurn next) {
  next.tools = std::move(outcomes_);
  const auto on_end = std::move(hooks_.on_end);  // which may destroy this
  on_end(std::move(next));
}

}  // namespace baton
