// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/run_progress.h"

#include <algorithm>
#include <optional>

#include "agents/pattern.h"
#include "workflows/format/placeholder.h"

namespace baton {

constexpr std::size_t kMaxOutputBytes = 64u << 20;  // of all outputs of the workflow

RunProgress::RunProgress(const Plan& plan, const std::map<std::string, std::string>& inputs)
    : plan_(plan), inputs_(inputs), turns_(plan.turns.size()) {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    AgentRecord& record = turns_[i].record;
    record.agent = plan_.turns[i].agent;
    record.round = plan_.turns[i].round;
    record.model = plan_.turns[i].model;
    record.attempts = 0;
    if (const AgentSpec* agent = plan_.spec->agent(record.agent)) record.role = agent->role;
  }
}

bool RunProgress::needs_over(std::size_t turn) const {
  const std::vector<int>& needs = plan_.turns[turn].needs;
  return std::all_of(needs.begin(), needs.end(), [&](int need) {
    return turns_[static_cast<std::size_t>(need)].phase == TurnProgress::Phase::over;
  });
}

bool RunProgress::round_over(int round) const {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    const bool belongs = plan_.turns[i].round <= round && !plan_.turns[i].decides;
    if (belongs && turns_[i].phase != TurnProgress::Phase::over) return false;
  }
  return true;
}

bool RunProgress::all_over() const {
  return std::all_of(turns_.begin(), turns_.end(),
                     [](const TurnProgress& state) { return state.phase == TurnProgress::Phase::over; });
}

bool RunProgress::holds(const ConditionSpec& condition, std::size_t turn) const {
  const TurnProgress* state = last(condition.agent, turn, Wanted::output);
  const bool found = Pattern(condition.matches).search(state == nullptr ? std::string_view() : state->record.output);
  return found != condition.negate;
}

/// The newest turn of an agent that a turn may see: of its own round only turns that it needs, because others may or
/// may not be over.
const TurnProgress* RunProgress::last(const std::string& agent, std::size_t turn, Wanted wanted) const {
  const PlannedTurn& reader = plan_.turns[turn];
  for (std::size_t i = turn; i-- > 0;) {
    if (plan_.turns[i].agent != agent || !has(turns_[i], wanted)) continue;
    const bool needed = std::binary_search(reader.needs.begin(), reader.needs.end(), static_cast<int>(i));
    if (plan_.turns[i].round < reader.round || needed) return &turns_[i];
  }
  return nullptr;
}

/// Null: no output. The deciding agent, which also follows rounds that ended early, sees the last output.
const TurnProgress* RunProgress::source_turn(std::size_t turn, const SlotSource& source) const {
  const Wanted wanted = source.kind == SlotSource::Kind::agent_output ? Wanted::output : Wanted::tool_text;
  const auto from = static_cast<std::size_t>(source.turn);
  if (has(turns_[from], wanted)) return &turns_[from];
  return plan_.turns[turn].decides ? last(plan_.turns[from].agent, turn, wanted) : nullptr;
}

bool RunProgress::lacks_output(std::size_t turn, const SlotSource& source) const {
  return source.kind == SlotSource::Kind::agent_output && source_turn(turn, source) == nullptr;
}

std::string_view RunProgress::source_text(std::size_t turn, const SlotSource& source) const {
  if (source.kind == SlotSource::Kind::empty) return {};
  if (source.kind == SlotSource::Kind::input) {
    const auto at = inputs_.find(source.name);
    return at == inputs_.end() ? std::string_view() : at->second;
  }
  const TurnProgress* state = source_turn(turn, source);
  if (state == nullptr) return {};
  return source.kind == SlotSource::Kind::agent_output ? state->record.output : state->tool_text;
}

std::vector<SlotInput> RunProgress::slot_inputs(std::size_t turn, const Tokenizer& tokenizer) const {
  std::vector<SlotInput> inputs;
  for (const SlotSource& source : plan_.turns[turn].slots) {
    SlotInput& input = inputs.emplace_back();
    input.name = source.name;
    input.text = source_text(turn, source);
    input.own_tools = source.kind == SlotSource::Kind::tool_result && static_cast<std::size_t>(source.turn) == turn;
    const TurnProgress* state = source.kind == SlotSource::Kind::agent_output ? source_turn(turn, source) : nullptr;
    // Ids mean the same only in the same vocabulary.
    if (state != nullptr && !state->tokens.empty() && state->tokenizer->identity() == tokenizer.identity())
      input.tokens = &state->tokens;
  }
  return inputs;
}

bool RunProgress::known(std::size_t turn, const SlotSource& source) const {
  if (source.kind == SlotSource::Kind::input || source.kind == SlotSource::Kind::empty) return true;
  const auto from = static_cast<std::size_t>(source.turn);
  return from != turn && turns_[from].phase == TurnProgress::Phase::over;
}

std::string_view RunProgress::slot_text(std::size_t turn, const std::string& slot) const {
  const SlotSource* source = plan_.turns[turn].slot(slot);
  return source == nullptr ? std::string_view() : source_text(turn, *source);
}

/// "Current" is the newest output; history counts back from its round.
std::string_view RunProgress::final_text(const std::string& placeholder) const {
  if (const auto at = inputs_.find(placeholder); at != inputs_.end()) return at->second;
  const std::optional<Placeholder> wanted = parse_placeholder(placeholder);
  if (!wanted) return {};
  const bool tool = wanted->kind == Placeholder::Kind::condition;
  int newest = 0;
  for (std::size_t i = size(); i-- > 0;) {
    if (plan_.turns[i].agent != wanted->id || !has(turns_[i], tool ? Wanted::tool_text : Wanted::output)) continue;
    if (newest == 0) newest = plan_.turns[i].round;
    if (plan_.turns[i].round == newest - wanted->history) return tool ? turns_[i].tool_text : turns_[i].record.output;
  }
  return {};
}

std::optional<NamedTexts> RunProgress::outputs() const {
  NamedTexts outputs;
  std::size_t bytes = 0;
  for (const auto& [name, pieces] : plan_.spec->outputs) {
    std::string& text = outputs[name];
    for (const TemplatePiece& piece : pieces) {
      const std::string_view part = piece.placeholder.empty() ? piece.text : final_text(piece.placeholder);
      bytes += part.size();
      if (bytes > kMaxOutputBytes) return std::nullopt;
      text += part;
    }
  }
  return outputs;
}

}  // namespace baton
