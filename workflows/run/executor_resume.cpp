// SPDX-License-Identifier: Apache-2.0
// Runs that go on where an earlier one ended: its finished turns are taken over.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "workflows/format/output.h"
#include "workflows/run/executor_loop.h"

namespace baton {
namespace {

/// The ids, if they are those of the text. What others read must not differ from what the record says.
std::vector<TokenId> ids_of(const AgentFinished& finished, const PlannedTurn& turn, const Tokenizer& tokenizer) {
  if (finished.tokens.empty()) return {};
  constexpr std::size_t kMaxCut = 32;  // bytes of a token in front of a stop string that begins inside of it
  const auto unusable = [&](TokenId id) { return id < 0 || id >= tokenizer.size() || tokenizer.is_special(id); };
  if (std::any_of(finished.tokens.begin(), finished.tokens.end(), unusable)) return {};
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : finished.tokens) text += decoder.push(id);
  const std::string& output = finished.record.output;
  const bool cut = !turn.stop.empty() && output.starts_with(text) && output.size() - text.size() <= kMaxCut;
  return cut || output == text + decoder.finish() ? finished.tokens : std::vector<TokenId>();
}

/// What the tools before the prompt returned: the last `count` uses, those of the last attempt.
std::string tool_text(const AgentRecord& record, std::size_t count) {
  std::vector<const ToolUse*> before;
  for (const ToolUse& use : record.tools) {
    if (use.generation == 0) before.push_back(&use);
  }
  std::string text;
  for (std::size_t i = before.size() - std::min(count, before.size()); i < before.size(); ++i)
    text += (i + count > before.size() ? "\n" : "") + before[i]->result;
  return text;
}

}  // namespace

std::string check_finished(const Plan& plan, const std::vector<AgentFinished>& finished) {
  std::set<int> known;
  for (const AgentFinished& one : finished) {
    if (one.turn < 0 || static_cast<std::size_t>(one.turn) >= plan.turns.size())
      return fmt::format("turn {} is not one of the workflow's {}", one.turn, plan.turns.size());
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(one.turn)];
    if (turn.agent != one.record.agent || turn.round != one.record.round)
      return fmt::format("turn {} is one of agent '{}' in round {}; expected '{}' in round {}", one.turn,
                         one.record.agent, one.record.round, turn.agent, turn.round);
    if (!one.record.turn.empty() && one.record.turn != turn.id)
      return fmt::format("turn {} is '{}'; expected '{}'", one.turn, one.record.turn, turn.id);
    const bool goes_on = one.record.state == TurnState::failed && turn.on_error != OnError::fail;
    if (one.record.state != TurnState::ok && !goes_on)
      return fmt::format("turn {} has the state {}; expected ok", one.turn, name_of(one.record.state));
    if (!known.insert(one.turn).second) return fmt::format("turn {} stands there twice", one.turn);
  }
  return {};
}

void RunLoop::restore(const AgentFinished& finished) {
  const auto turn = static_cast<std::size_t>(finished.turn);
  const PlannedTurn& planned_turn = planned(turn);
  TurnProgress& state = state_.turn(turn);
  state.record = finished.record;
  state.record.turn = planned_turn.id;  // records of older versions have none
  const bool ok = finished.record.state == TurnState::ok;
  state.has_output = ok || planned_turn.on_error == OnError::fallback;
  if (planned_turn.has_prompt()) {
    state.has_tool_text = !planned_turn.tools.empty();
    state.tool_text = tool_text(finished.record, planned_turn.tools.size());
    const std::shared_ptr<InferenceEngine>& engine = request_.engines.at(planned_turn.model);
    state.tokenizer = engine->text().tokenizer;
    state.tokens = ids_of(finished, planned_turn, *state.tokenizer);
  } else {
    state.has_tool_text = state.has_output;
    state.tool_text = finished.record.output;
  }
  const AgentSpec* agent = plan_.spec->agent(planned_turn.agent);
  if (ok && agent != nullptr && agent->output.has_answer()) {
    CheckedOutput checked = check_output(agent->output, planned_turn.grammar.get(), finished.record.output);
    if (checked.problem.empty()) state_.set_answer(turn, std::move(checked.answer));
  }
  close(turn, finished.record.state);
}

}  // namespace baton
