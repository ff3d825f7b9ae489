// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/run_progress.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>
#include <vector>

#include "agents/prompts/conversation.h"
#include "engine/base/utf8.h"
#include "engine/text/pattern.h"
#include "workflows/format/output.h"
#include "workflows/format/placeholder.h"
#include "workflows/run/executor.h"

#include <baton/errors.h>

namespace baton {
namespace {

constexpr std::size_t kMaxOutputBytes = 64u << 20;  // all outputs of the workflow together

/// With four decimals, which is what texts and conditions need.
std::string json_text_of(const std::vector<std::pair<std::string, double>>& probabilities) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [text, probability] : probabilities) json[text] = std::round(probability * 1e4) / 1e4;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Returns the text of a placeholder of this kind and name, of a turn that is over.
std::string_view text_of(const TurnProgress& state, Placeholder::Kind kind, const std::string& name) {
  if (kind == Placeholder::Kind::condition) return state.tool_text;
  if (kind == Placeholder::Kind::agent) return state.record.output;
  if (kind == Placeholder::Kind::thinking) return state.record.thinking;
  const auto answer = state.answers.find(name);
  return answer == state.answers.end() ? std::string_view() : answer->second;
}

/// The id of a turn is its step's, in later rounds with their number.
bool is_of_step(const PlannedTurn& turn, std::string_view step) {
  return turn.id.starts_with(step) && (turn.id.size() == step.size() || turn.id[step.size()] == '#');
}

}  // namespace

RunProgress::RunProgress(const Plan& plan, const std::map<std::string, std::string>& inputs)
    : plan_(plan), inputs_(inputs), turns_(plan.turns.size()) {
  for (std::size_t i = 0; i < turns_.size(); ++i) {
    AgentRecord& record = turns_[i].record;
    record.turn = plan_.turns[i].id;
    record.agent = plan_.turns[i].agent;
    record.round = plan_.turns[i].round;
    record.model = plan_.turns[i].model;
    record.attempts = 0;
    if (const AgentSpec* agent = plan_.spec->agent(record.agent)) record.role = agent->role;
  }
  const auto reads = [&](const std::string& name) {
    const std::optional<Placeholder> placeholder = parse_placeholder(name);
    if (!placeholder || !placeholder->has_members()) return;
    const bool answer = placeholder->kind == Placeholder::Kind::answer;
    (answer ? read_answers_ : read_probabilities_)[placeholder->id].emplace(name, *placeholder);
  };
  for (const PlannedTurn& turn : plan_.turns) {
    for (const SlotSource& slot : turn.slots) reads(slot.name);
  }
  for (const auto& [name, pieces] : plan_.spec->outputs) {
    for (const TemplatePiece& piece : pieces) reads(piece.placeholder);
  }
}

void RunProgress::set_answer(std::size_t turn, std::string answer) {
  TurnProgress& state = turns_[turn];
  const auto read = [&](const Reads& reads, const std::string& text) {
    if (const auto names = reads.find(plan_.turns[turn].agent); names != reads.end())
      state.answers.merge(answer_texts(text, names->second));
  };
  state.answers.clear();
  state.probabilities = json_text_of(state.record.probabilities);
  read(read_answers_, answer);
  read(read_probabilities_, state.probabilities);
  state.record.answer = std::move(answer);
  state.has_answer = true;
}

bool RunProgress::matches(const ConditionSpec& condition, const TurnProgress* state) const {
  const std::string_view output = state == nullptr ? std::string_view() : state->record.output;
  return Pattern(condition.matches).search(output) != condition.negate;
}

NamedValue RunProgress::value_of(const Placeholder& placeholder, const TurnProgress* state) const {
  NamedValue value{NamedValue::Kind::text};
  if (state == nullptr) {
    if (placeholder.has_members()) value.kind = NamedValue::Kind::undefined;
  } else if (placeholder.kind == Placeholder::Kind::agent) {
    value.text = state->record.output;
  } else if (placeholder.kind == Placeholder::Kind::thinking) {
    value.text = state->record.thinking;
  } else if (placeholder.kind == Placeholder::Kind::condition) {
    value.text = state->tool_text;
  } else if (!state->has_answer) {
    value.kind = NamedValue::Kind::undefined;
  } else if (placeholder.kind == Placeholder::Kind::probabilities) {
    value = {NamedValue::Kind::json, state->probabilities};
  } else {
    value.text = state->record.answer;
    const AgentSpec* agent = plan_.spec->agent(placeholder.id);
    if (agent != nullptr && !agent->output.schema.empty()) value.kind = NamedValue::Kind::json;
  }
  return value;
}

bool RunProgress::holds(const ConditionSpec& condition, int round,
                        const std::function<const TurnProgress*(const std::string& name)>& turn_of) const {
  const auto value = [&](const std::string& name) {
    if (const auto input = inputs_.find(name); input != inputs_.end())
      return NamedValue{NamedValue::Kind::text, input->second};
    if (name == kRoundName) return NamedValue{NamedValue::Kind::integer, {}, round};
    std::optional<Placeholder> placeholder = find_placeholder(*plan_.spec, name);
    if (!placeholder) placeholder = parse_placeholder(name);
    return placeholder ? value_of(*placeholder, turn_of(name)) : NamedValue{};
  };
  try {
    return condition.expression->holds(value);
  } catch (const ExpressionError& error) {
    throw std::runtime_error(fmt::format("the condition '{}', character {}: {}", condition.expression->source(),
                                         error.byte + 1, error.what()));
  }
}

bool RunProgress::may_begin(std::size_t turn) const {
  const PlannedTurn& planned = plan_.turns[turn];
  if (!planned.when) return true;
  if (!planned.when->expression) return matches(*planned.when, last(planned.when->agent, turn, Wanted::output));
  return holds(*planned.when, planned.round, [&](const std::string& name) -> const TurnProgress* {
    for (const SlotSource& read : planned.when_reads) {
      if (read.name == name) return read.turn < 0 ? nullptr : source_turn(turn, read);
    }
    return nullptr;
  });
}

bool RunProgress::rounds_end(int round) const {
  const std::optional<ConditionSpec>& until = plan_.spec->topology.until;
  if (!until) return false;
  if (!until->expression) return matches(*until, final_turn({Placeholder::Kind::agent, until->agent}));
  return holds(*until, round,
               [&](const std::string& name) { return final_turn(*find_placeholder(*plan_.spec, name)); });
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

/// Null: no output. The plan does not know after which round the deciding agent runs, since rounds may end early.
const TurnProgress* RunProgress::source_turn(std::size_t turn, const SlotSource& source) const {
  const auto from = static_cast<std::size_t>(source.turn);
  if (plan_.turns[turn].decides && from != turn) return final_turn(*find_placeholder(*plan_.spec, source.name));
  const Wanted wanted = source.kind == SlotSource::Kind::tool_result ? Wanted::tool_text : Wanted::output;
  return has(turns_[from], wanted) ? &turns_[from] : nullptr;
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
  if (source.kind == SlotSource::Kind::tool_result) return text_of(*state, Placeholder::Kind::condition, source.name);
  const auto kind = source.kind == SlotSource::Kind::agent_output     ? Placeholder::Kind::agent
                    : source.kind == SlotSource::Kind::agent_thinking ? Placeholder::Kind::thinking
                                                                      : Placeholder::Kind::answer;
  return text_of(*state, kind, source.name);
}

std::vector<SlotInput> RunProgress::slot_inputs(std::size_t turn, const Tokenizer& tokenizer) const {
  std::vector<SlotInput> inputs;
  for (const SlotSource& source : plan_.turns[turn].slots) {
    SlotInput& input = inputs.emplace_back();
    input.name = source.name;
    input.text = source_text(turn, source);
    input.of_tools = source.kind == SlotSource::Kind::tool_result;
    input.own_tools = source.kind == SlotSource::Kind::tool_result && static_cast<std::size_t>(source.turn) == turn;
    const bool answer = source.kind == SlotSource::Kind::agent_answer && !source.is_member();
    const bool decoded = source.kind == SlotSource::Kind::agent_output || answer;
    const TurnProgress* state = decoded ? source_turn(turn, source) : nullptr;
    if (answer && state != nullptr && (!state->has_answer || state->record.answer != state->record.output))
      state = nullptr;
    // Ids mean the same only in the same vocabulary.
    if (state != nullptr && !state->tokens.empty() && state->tokenizer->identity() == tokenizer.identity())
      input.tokens = state->tokens;
  }
  return inputs;
}

bool RunProgress::known(std::size_t turn, const SlotSource& source) const {
  if (source.kind == SlotSource::Kind::input || source.kind == SlotSource::Kind::empty) return true;
  const auto from = static_cast<std::size_t>(source.turn);
  if (from == turn || turns_[from].phase != TurnProgress::Phase::over) return false;
  if (!plan_.turns[turn].decides) return true;
  for (std::size_t i = 0; i < turn; ++i) {  // each of them may be the agent's last
    const bool may_count = plan_.turns[i].agent == plan_.turns[from].agent;
    if (may_count && turns_[i].phase != TurnProgress::Phase::over) return false;
  }
  return true;
}

std::string_view RunProgress::slot_text(std::size_t turn, const std::string& slot) const {
  const SlotSource* source = plan_.turns[turn].slot(slot);
  return source == nullptr ? std::string_view() : source_text(turn, *source);
}

/// Of the turns that are over: "current" is the newest output; history counts back from its round. Null: there is none.
const TurnProgress* RunProgress::final_turn(const Placeholder& placeholder) const {
  const Wanted wanted = placeholder.kind == Placeholder::Kind::condition ? Wanted::tool_text : Wanted::output;
  int newest = 0;
  for (std::size_t i = size(); i-- > 0;) {
    if (plan_.turns[i].agent != placeholder.id || !has(turns_[i], wanted)) continue;
    if (!placeholder.step.empty() && !is_of_step(plan_.turns[i], placeholder.step)) continue;
    if (newest == 0) newest = plan_.turns[i].round;
    if (plan_.turns[i].round == newest - placeholder.history) return &turns_[i];
  }
  return nullptr;
}

std::string_view RunProgress::final_text(const std::string& name) const {
  if (const auto at = inputs_.find(name); at != inputs_.end()) return at->second;
  const std::optional<Placeholder> placeholder = find_placeholder(*plan_.spec, name);
  const TurnProgress* state = placeholder ? final_turn(*placeholder) : nullptr;
  return state == nullptr ? std::string_view() : text_of(*state, placeholder->kind, name);
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

// A run begins with its inputs, and with the finished turns of an earlier run that it continues.

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

/// Returns the ids if they are those of the text: readers must not see another text than the record has.
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

/// Returns the results of the tools before the prompt: the last `count` uses, those of the last attempt.
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

/// True if a tool before the prompt failed the turn: what it said is no result.
bool failed_by_tool(const AgentRecord& record, const PlannedTurn& turn) {
  if (record.state == TurnState::ok || turn.tells_errors) return false;
  const auto before = [](const ToolUse& use) { return use.generation == 0; };
  const auto last = std::find_if(record.tools.rbegin(), record.tools.rend(), before);
  return last != record.tools.rend() && !last->ok;
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
    turn.of_host = true;
    turn.messages.clear();
    for (const PromptMessage& message : messages) {
      if (!stands_for_others(message)) {
        turn.messages.push_back(message);
        continue;
      }
      const auto value = inputs.find(message.pieces.front().slot);
      if (value == inputs.end()) continue;
      for (SaidMessage& said : read_messages(value->second))
        turn.messages.push_back({std::move(said.role), {{std::move(said.text), "", true}}, std::move(said.calls)});
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
    state.has_tool_text = !planned.tools.empty() && !failed_by_tool(finished.record, planned);
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
