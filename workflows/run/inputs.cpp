// SPDX-License-Identifier: Apache-2.0
// What a run begins with: its inputs, and the finished turns of an earlier run that it goes on from.
#include "workflows/run/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <vector>

#include <baton/errors.h>

#include "agents/prompts/conversation.h"
#include "engine/base/utf8.h"
#include "workflows/format/output.h"
#include "workflows/run/run_progress.h"

namespace baton {
namespace {

/// True when the turn's messages or tools name the slot.
bool is_shown(const PlannedTurn& turn, const std::string& slot) {
  bool shown = false;
  for (const PromptMessage& message : turn.messages) {
    for (const PromptPiece& piece : message.pieces) shown = shown || piece.slot == slot;
  }
  for (const ToolSpec& tool : turn.tools)
    tool.for_each_placeholder([&](const std::string& name, const SourceLocation&) { shown = shown || name == slot; });
  return shown;
}

/// The ids, if they are those of the text. What others read must not differ from what the record says.
std::vector<TokenId> ids_of_output(const AgentFinished& finished, const PlannedTurn& turn, const Tokenizer& tokenizer) {
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
std::string tool_text_of(const AgentRecord& record, std::size_t count) {
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

std::map<std::string, std::string> complete_inputs(const WorkflowSpec& spec,
                                                   const std::map<std::string, std::string>& given,
                                                   MissingInputs missing) {
  std::vector<std::string> known;
  for (const InputSpec& input : spec.inputs) known.push_back(input.name);
  for (const auto& [name, text] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) {
      if (!utf8::is_valid(text)) throw InputError(fmt::format("input '{}' is not valid UTF-8", name));
      continue;
    }
    std::string message = fmt::format("unknown input '{}'; the workflow has: {}", name,
                                      known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    if (const std::string near = closest(name, known); !near.empty())
      message += fmt::format("; did you mean '{}'?", near);
    throw InputError(message);
  }

  std::map<std::string, std::string> inputs;
  std::vector<std::string> lacking;
  for (const InputSpec& input : spec.inputs) {
    if (const auto at = given.find(input.name); at != given.end()) {
      inputs[input.name] = at->second;
    } else if (input.default_value) {
      inputs[input.name] = *input.default_value;
    } else if (!input.required && missing == MissingInputs::refused) {
      inputs[input.name] = "";
    } else {
      lacking.push_back(input.name);
    }
    if (const auto value = inputs.find(input.name); input.messages && value != inputs.end()) {
      try {
        if (value->second.empty()) value->second = "[]";
        read_messages(value->second);
      } catch (const std::runtime_error& error) {
        throw InputError(fmt::format("input '{}': expected a list of messages as JSON: {}", input.name, error.what()));
      }
    }
  }
  if (!lacking.empty() && missing == MissingInputs::refused)
    throw InputError(fmt::format("missing input: '{}'", fmt::join(lacking, "', '")), lacking);
  return inputs;
}

std::shared_ptr<const Plan> with_messages(std::shared_ptr<const Plan> plan,
                                          const std::map<std::string, std::string>& inputs) {
  const auto stands_for_others = [](const PromptMessage& message) { return message.role.empty(); };
  std::shared_ptr<Plan> out;
  for (std::size_t i = 0; i < plan->turns.size(); ++i) {
    const std::vector<PromptMessage>& messages = plan->turns[i].messages;
    if (std::none_of(messages.begin(), messages.end(), stands_for_others)) continue;
    if (!out) out = std::make_shared<Plan>(*plan);
    PlannedTurn& turn = out->turns[i];
    turn.messages.clear();
    for (const PromptMessage& message : messages) {
      if (!stands_for_others(message)) {
        turn.messages.push_back(message);
        continue;
      }
      const auto value = inputs.find(message.pieces.front().slot);
      if (value == inputs.end()) continue;
      for (SaidMessage& said : read_messages(value->second))
        turn.messages.push_back({std::move(said.role), {{std::move(said.text), "", true}}});
    }
    if (turn.messages.empty())
      throw InputError(fmt::format("agent '{}': its prompt has no message with these inputs", turn.agent));
    std::erase_if(turn.slots, [&](const SlotSource& slot) { return !is_shown(turn, slot.name); });
  }
  return out ? out : plan;
}

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

void restore_turn(RunProgress& progress, const RunRequest& request, const AgentFinished& finished) {
  const Plan& plan = *request.plan;
  const auto turn = static_cast<std::size_t>(finished.turn);
  const PlannedTurn& planned = plan.turns[turn];
  TurnProgress& state = progress.turn(turn);
  state.record = finished.record;
  state.record.turn = planned.id;  // records of older versions have none
  const bool ok = finished.record.state == TurnState::ok;
  state.has_output = ok || planned.on_error == OnError::fallback;
  if (planned.has_prompt()) {
    state.has_tool_text = !planned.tools.empty();
    state.tool_text = tool_text_of(finished.record, planned.tools.size());
    const std::shared_ptr<InferenceEngine>& engine = request.engines.at(planned.model);
    state.tokenizer = engine->text().tokenizer;
    state.tokens = ids_of_output(finished, planned, *state.tokenizer);
  } else {
    state.has_tool_text = state.has_output;
    state.tool_text = finished.record.output;
  }
  const AgentSpec* agent = plan.spec->agent(planned.agent);
  if (ok && agent != nullptr && agent->output.has_answer()) {
    CheckedOutput checked = check_output(agent->output, planned.grammar.get(), finished.record.output);
    if (checked.problem.empty()) progress.set_answer(turn, std::move(checked.answer));
  }
}

}  // namespace baton
