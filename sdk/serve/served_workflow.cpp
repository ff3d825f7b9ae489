// SPDX-License-Identifier: Apache-2.0
#include "sdk/serve/served_workflow.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <baton/errors.h>

#include "engine/base/json/json_reader.h"

namespace baton::serve {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::size_t kMaxName = 128;

bool may_be_in_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

struct InputNames {
  std::vector<std::string> texts, open, histories;
};

InputNames names_of(const Workflow& workflow, const std::map<std::string, std::string>& given) {
  InputNames names;
  for (const InputInfo& input : workflow.inputs()) {
    (input.messages ? names.histories : names.texts).push_back(input.name);
    if (!input.messages && input.required && given.count(input.name) == 0) names.open.push_back(input.name);
  }
  return names;
}

/// The input that messages fill; empty: there is no text input.
std::string message_of(const std::string& name, const InputNames& names) {
  if (names.open.size() == 1) return names.open.front();
  if (names.open.empty() && names.texts.size() == 1) return names.texts.front();
  if (names.texts.empty()) return {};
  throw InputError(
      fmt::format("workflow '{}': which input is the user's message? Expected one input that is required, found {}; "
                  "name it with --message {}=INPUT, one of: {}",
                  name, names.open.empty() ? "none" : fmt::format("{}", fmt::join(names.open, ", ")), name,
                  fmt::join(names.texts, ", ")));
}

OrderedJson json_of(const ServedWorkflow& served, long long created) {
  OrderedJson inputs = OrderedJson::array();
  for (const InputInfo& input : served.workflow.inputs()) {
    const auto fixed = served.inputs.find(input.name);
    const OrderedJson value = fixed != served.inputs.end() ? OrderedJson(fixed->second)
                              : input.default_value        ? OrderedJson(*input.default_value)
                                                           : OrderedJson(nullptr);
    inputs.push_back({{"name", input.name},
                      {"type", input.messages ? "messages" : "string"},
                      {"required", input.required && value.is_null()},
                      {"default", value},
                      {"description", input.description}});
  }
  OrderedJson agents = OrderedJson::array();
  for (const AgentInfo& agent : served.workflow.agents()) agents.push_back({{"id", agent.id}, {"role", agent.role}});
  const auto name_or_null = [](const std::string& name) {
    return name.empty() ? OrderedJson(nullptr) : OrderedJson(name);
  };
  return {{"id", served.name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "baton"},
          {"baton",
           {{"message", name_or_null(served.message)},
            {"history", name_or_null(served.history)},
            {"streams", served.answer >= 0},
            {"inputs", std::move(inputs)},
            {"agents", std::move(agents)}}}};
}

}  // namespace

ServedWorkflow serve_workflow(std::string name, Workflow workflow, const std::string& message,
                              std::map<std::string, std::string> inputs) {
  const std::vector<TurnInfo> turns = workflow.turns();
  const auto asks = std::find_if(turns.begin(), turns.end(), [](const TurnInfo& turn) { return turn.asks; });
  if (asks != turns.end())
    throw InputError(
        fmt::format("workflow '{}': its step '{}' asks a person, and a server has nobody to ask", name, asks->id));
  const InputNames names = names_of(workflow, inputs);
  for (const auto& [input, value] : inputs) {
    const bool known = std::count(names.texts.begin(), names.texts.end(), input) +
                           std::count(names.histories.begin(), names.histories.end(), input) >
                       0;
    if (!known) throw InputError(fmt::format("workflow '{}': unknown input '{}'", name, input));
  }
  if (names.histories.size() > 1)
    throw InputError(
        fmt::format("workflow '{}': which input is the conversation? Expected at most one of type "
                    "messages, found {}",
                    name, fmt::join(names.histories, ", ")));
  if (!message.empty() && std::count(names.texts.begin(), names.texts.end(), message) == 0)
    throw InputError(
        fmt::format("workflow '{}': expected the name of a text input for its messages, found '{}'; its "
                    "text inputs are: {}",
                    name, message, fmt::join(names.texts, ", ")));
  ServedWorkflow served{std::move(name), std::move(workflow), message, {}, std::move(inputs)};
  if (served.message.empty()) served.message = message_of(served.name, names);
  if (!names.histories.empty()) served.history = names.histories.front();
  if (served.message.empty() && served.history.empty())
    throw InputError(fmt::format("workflow '{}': it has no inputs, so that no message can reach it", served.name));
  const auto answers = std::find_if(turns.begin(), turns.end(), [](const TurnInfo& turn) { return turn.answers; });
  if (answers != turns.end()) served.answer = static_cast<int>(answers - turns.begin());
  return served;
}

void ServedWorkflows::add(ServedWorkflow workflow) {
  const std::string& name = workflow.name;
  if (name.empty() || name.size() > kMaxName || !std::all_of(name.begin(), name.end(), may_be_in_name))
    throw InputError(
        fmt::format("'{}' cannot be the name of a model: expected 1 to {} letters, digits, '.', '_' and "
                    "'-'; rename the file, or give NAME=FILE",
                    name, kMaxName));
  if (find(name) != nullptr)
    throw InputError(fmt::format("two workflows are called '{}'; give one of them another name with NAME=FILE", name));
  workflows_.push_back(std::move(workflow));
}

const ServedWorkflow* ServedWorkflows::find(std::string_view name) const {
  const auto at = std::find_if(workflows_.begin(), workflows_.end(), [&](const auto& one) { return one.name == name; });
  return at == workflows_.end() ? nullptr : &*at;
}

std::string ServedWorkflows::names() const {
  std::vector<std::string> names;
  for (const ServedWorkflow& one : workflows_) names.push_back(one.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string model_json(const ServedWorkflow& workflow, long long created) {
  return json_text(json_of(workflow, created));
}

std::string models_json(const ServedWorkflows& workflows, long long created) {
  OrderedJson data = OrderedJson::array();
  for (const ServedWorkflow& one : workflows.all()) data.push_back(json_of(one, created));
  return json_text(OrderedJson{{"object", "list"}, {"data", std::move(data)}});
}

}  // namespace baton::serve
