// SPDX-License-Identifier: Apache-2.0
// Steps that wait for the host, and runs that are suspended for them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "workflows/run/executor_loop.h"

namespace baton {
namespace {

/// The question of one attempt, which a worker asks as it calls a tool.
class HostQuestion : public Tool {
 public:
  HostQuestion(const RunRequest& request, Asked asked, const std::string* known)
      : request_(request), asked_(std::move(asked)), known_(known) {}
  std::string name() const override { return kAskTool; }
  std::string check(const std::map<std::string, std::string>&) const override { return {}; }
  ToolResult call(const ToolCall& call) const override {
    if (known_ != nullptr) return {true, *known_};
    std::optional<std::string> answer = request_.on_ask ? request_.on_ask(asked_, call.stop) : std::nullopt;
    if (!answer) throw NoAnswer();
    return {true, std::move(*answer)};
  }

 private:
  const RunRequest& request_;
  Asked asked_;
  const std::string* known_;  // an answer that was given in advance; null: none
};

}  // namespace

/// An answer that was given in advance counts for the first attempt.
ToolInput RunLoop::question(std::size_t turn, const ToolSpec& spec) {
  Attempt& attempt = *attempts_[turn];
  const PlannedTurn& planned_turn = planned(turn);
  ToolInput tool = tool_input(turn, spec);
  Asked asked{planned_turn.agent, planned_turn.round, tool.call.options["question"]};
  asked.turn = planned_turn.id;
  if (const AgentSpec* agent = plan_.spec->agent(planned_turn.agent)) asked.choices = agent->output.texts;
  const auto given = request_.answers.find(planned_turn.id);
  const bool known = given != request_.answers.end() && attempt.number == 1;
  if (!known && tool.refused.empty()) emit(asked);
  tool.call.arguments = asked.question;
  attempt.question = std::make_shared<const HostQuestion>(request_, std::move(asked), known ? &given->second : nullptr);
  tool.tool = attempt.question.get();
  return tool;
}

/// Turns to which the host has no answer.
int RunLoop::asked() const {
  return static_cast<int>(std::count_if(attempts_.begin(), attempts_.end(),
                                        [](const auto& one) { return one->phase == Attempt::Phase::asked; }));
}

/// Running turns that wait for the host: they take no place of those that work.
int RunLoop::waiting_for_host() const {
  int count = asked();
  for (std::size_t i = 0; i < attempts_.size(); ++i)
    count += planned(i).asks() && attempts_[i]->phase == Attempt::Phase::preparing ? 1 : 0;
  return count;
}

/// Ends a run that can do no more without the host's answers.
void RunLoop::suspend() {
  if (ending_ || asked() == 0 || asked() < running_) return;
  std::string turns;
  for (std::size_t i = 0; i < attempts_.size(); ++i) {
    if (attempts_[i]->phase == Attempt::Phase::asked)
      turns += fmt::format("{}'{}'", turns.empty() ? "" : ", ", planned(i).id);
  }
  end(RunState::suspended, fmt::format("the answer to {} is missing", turns), std::nullopt);
}

}  // namespace baton
