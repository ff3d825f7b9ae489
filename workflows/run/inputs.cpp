// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include <baton/errors.h>

#include "agents/prompts/conversation.h"
#include "engine/base/utf8.h"

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

}  // namespace baton
