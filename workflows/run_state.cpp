#include "workflows/run_state.h"

#include <algorithm>
#include <optional>

#include "agents/pattern.h"
#include "workflows/placeholder.h"

namespace baton {
RunState::RunState(const Plan& plan, const std::map<std::string, std::string>& inputs)
    : plan_(plan), inputs_(inputs), turns_(plan.steps.size()) {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    const PlanStep& step = plan_.steps[i];
    AgentRecord& record = turns_[i].record;
    record.agent = step.agent;
    record.round = step.round;
    record.attempts = 0;
    if (const AgentSpec* agent = plan_.spec->agent(step.agent)) record.role = agent->role;
  }
}

bool RunState::needs_over(std::size_t step) const {
  const std::vector<int>& needs = plan_.steps[step].needs;
  return std::all_of(needs.begin(), needs.end(),
                     [&](int need) { return turns_[static_cast<std::size_t>(need)].state == Turn::State::over; });
}

bool RunState::round_over(int round) const {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    const bool belongs = plan_.steps[i].round <= round && !plan_.steps[i].decides;
    if (belongs && turns_[i].state != Turn::State::over) return false;
  }
  return true;
}

bool RunState::all_over() const {
  return std::all_of(turns_.begin(), turns_.end(), [](const Turn& turn) { return turn.state == Turn::State::over; });
}

const Turn* RunState::last_output(const std::string& agent, std::size_t before) const {
  for (std::size_t i = std::min(before, turns_.size()); i-- > 0;) {
    if (plan_.steps[i].agent == agent && turns_[i].has_output && turns_[i].state == Turn::State::over) return &turns_[i];
  }
  return nullptr;
}

bool RunState::holds(const ConditionSpec& condition, std::size_t before) const {
  const Turn* turn = last_output(condition.agent, before);
  const bool found = Pattern(condition.matches).search(turn == nullptr ? std::string() : turn->record.output);
  return found != condition.negate;
}

const Turn* RunState::output_for(std::size_t step, const SlotSource& source) const {
  const std::size_t from = static_cast<std::size_t>(source.step);
  if (turns_[from].has_output) return &turns_[from];
  return plan_.steps[step].decides ? last_output(plan_.steps[from].agent, from) : nullptr;
}

const Turn* RunState::tool_turn_for(std::size_t step, const SlotSource& source) const {
  for (std::size_t i = static_cast<std::size_t>(source.step) + 1; i-- > 0;) {
    if (plan_.steps[i].agent != plan_.steps[static_cast<std::size_t>(source.step)].agent) continue;
    if (turns_[i].has_tool_text) return &turns_[i];
    if (!plan_.steps[step].decides) return nullptr;
  }
  return nullptr;
}

SlotInput RunState::slot_input(std::size_t step, const SlotSource& source, const Tokenizer& tokenizer) const {
  SlotInput input;
  input.name = source.name;
  switch (source.kind) {
    case SlotSource::Kind::input:
      if (const auto at = inputs_.find(source.name); at != inputs_.end()) input.text = at->second;
      break;
    case SlotSource::Kind::agent_output:
      if (const Turn* turn = output_for(step, source)) {
        input.text = turn->record.output;
        // Ids mean the same only in the same vocabulary.
        if (!turn->tokens.empty() && turn->tokenizer.get() == &tokenizer) input.tokens = &turn->tokens;
      }
      break;
    case SlotSource::Kind::tool_result:
      input.own_tools = static_cast<std::size_t>(source.step) == step;
      if (const Turn* turn = input.own_tools ? nullptr : tool_turn_for(step, source)) input.text = turn->tool_text;
      break;
    case SlotSource::Kind::empty:
      break;
  }
  return input;
}

std::vector<SlotInput> RunState::slot_inputs(std::size_t step, const Tokenizer& tokenizer) const {
  std::vector<SlotInput> inputs;
  for (const SlotSource& source : plan_.steps[step].slots) inputs.push_back(slot_input(step, source, tokenizer));
  return inputs;
}

std::string_view RunState::text_of(const std::string& placeholder, std::size_t step) const {
  if (const auto at = inputs_.find(placeholder); at != inputs_.end()) return at->second;
  const std::optional<Placeholder> reference = parse_placeholder(placeholder);
  if (!reference) return {};
  const bool tool = reference->kind == Placeholder::Kind::condition;
  // "Current" is the newest there is; history counts back from the round of the reader, or of the newest output.
  int round = step < size() ? plan_.steps[step].round : 0;
  for (std::size_t i = std::min(step, size()); i-- > 0;) {
    if (plan_.steps[i].agent != reference->id || turns_[i].state != Turn::State::over) continue;
    if (tool ? !turns_[i].has_tool_text : !turns_[i].has_output) continue;
    if (round == 0) round = plan_.steps[i].round;
    if (reference->history > 0 && plan_.steps[i].round != round - reference->history) continue;
    return tool ? turns_[i].tool_text : turns_[i].record.output;
  }
  return {};
}

std::map<std::string, std::string> RunState::outputs() const {
  std::map<std::string, std::string> outputs;
  for (const auto& [name, pieces] : plan_.spec->outputs) {
    std::string& text = outputs[name];
    for (const TemplatePiece& piece : pieces) text += piece.placeholder.empty() ? std::string_view(piece.text) : text_of(piece.placeholder, size());
  }
  return outputs;
}

}  // namespace baton
