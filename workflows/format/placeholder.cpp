// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/placeholder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace baton {
namespace {

constexpr int kMaxHistory = 1000;

/// Takes "_current" or "_history_<t>" off the end.
std::optional<int> take_suffix(std::string_view& name) {
  constexpr std::string_view kCurrent = "_current", kHistory = "_history_";
  if (name.ends_with(kCurrent)) {
    name.remove_suffix(kCurrent.size());
    return 0;
  }
  const std::size_t at = name.rfind(kHistory);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = name.substr(at + kHistory.size());
  int history = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), history);
  const bool whole = error == std::errc() && end == digits.data() + digits.size() && !digits.starts_with('0');
  if (!whole || history < 1 || history > kMaxHistory) return std::nullopt;
  name = name.substr(0, at);
  return history;
}

bool is_input(const WorkflowSpec& spec, const std::string& name) {
  return std::any_of(spec.inputs.begin(), spec.inputs.end(),
                     [&](const InputSpec& input) { return input.name == name; });
}

/// The name that was probably meant, or empty.
std::string closest_placeholder(const WorkflowSpec& spec, const std::string& name) {
  std::vector<std::string> ids, names;
  for (const AgentSpec& agent : spec.agents) ids.push_back(agent.id);
  if (std::optional<Placeholder> parsed = parse_placeholder(name)) {
    const std::string id = closest(parsed->id, ids);  // compared without the parts that all names share
    if (id.empty()) return {};
    parsed->id = id;
    return placeholder_name(*parsed);
  }
  for (const std::string& whole : {name + "_current", "agent_" + name + "_current"}) {
    if (find_placeholder(spec, whole)) return whole;  // the name lacks its ends
  }
  for (const InputSpec& input : spec.inputs) names.push_back(input.name);
  for (const AgentSpec& agent : spec.agents) {
    if (agent.output.has_answer()) names.push_back(placeholder_name({Placeholder::Kind::answer, agent.id}));
    if (agent.output.choose) names.push_back(placeholder_name({Placeholder::Kind::probabilities, agent.id}));
  }
  for (const std::string& id : ids) {
    for (const auto kind : {Placeholder::Kind::agent, Placeholder::Kind::condition}) {
      names.push_back(placeholder_name({kind, id, 0}));
      names.push_back(placeholder_name({kind, id, 1}));
    }
  }
  return closest(name, names);
}

}  // namespace

std::optional<Placeholder> parse_placeholder(std::string_view name) {
  Placeholder found;
  constexpr std::string_view kAgent = "agent_";
  constexpr std::pair<Placeholder::Kind, std::string_view> kWithMembers[] = {
      {Placeholder::Kind::answer, "_answer"}, {Placeholder::Kind::probabilities, "_probabilities"}};
  std::string_view members = name.substr(std::min(name.find('.'), name.size()));
  name.remove_suffix(members.size());
  for (const auto& [kind, suffix] : kWithMembers) {
    if (name.size() <= kAgent.size() + suffix.size() || !name.starts_with(kAgent) || !name.ends_with(suffix)) continue;
    found.kind = kind;
    found.id = name.substr(kAgent.size(), name.size() - kAgent.size() - suffix.size());
    while (!members.empty()) {
      members.remove_prefix(1);
      found.path.emplace_back(members.substr(0, members.find('.')));
      members.remove_prefix(found.path.back().size());
    }
    return found;
  }
  if (!members.empty()) return std::nullopt;
  if (name.starts_with("agent_")) {
    found.kind = Placeholder::Kind::agent;
    name.remove_prefix(std::string_view("agent_").size());
  } else if (name.starts_with("condition_")) {
    found.kind = Placeholder::Kind::condition;
    name.remove_prefix(std::string_view("condition_").size());
  } else {
    return std::nullopt;
  }
  const std::optional<int> history = take_suffix(name);
  if (!history || name.empty()) return std::nullopt;
  found.id = name;
  found.history = *history;
  return found;
}

std::string placeholder_name(const Placeholder& placeholder) {
  if (placeholder.kind == Placeholder::Kind::input) return placeholder.id;
  if (placeholder.has_members()) {
    const bool answer = placeholder.kind == Placeholder::Kind::answer;
    std::string name = fmt::format("agent_{}_{}", placeholder.id, answer ? "answer" : "probabilities");
    for (const std::string& member : placeholder.path) name += "." + member;
    return name;
  }
  const char* kind = placeholder.kind == Placeholder::Kind::agent ? "agent" : "condition";
  if (placeholder.history == 0) return fmt::format("{}_{}_current", kind, placeholder.id);
  return fmt::format("{}_{}_history_{}", kind, placeholder.id, placeholder.history);
}

std::optional<Placeholder> find_placeholder(const WorkflowSpec& spec, const std::string& name) {
  if (is_input(spec, name)) return Placeholder{Placeholder::Kind::input, name, 0};
  std::optional<Placeholder> found = parse_placeholder(name);
  if (!found || spec.agent(found->id) == nullptr) return std::nullopt;
  return found;
}

PlaceholderNames::PlaceholderNames(const WorkflowSpec& spec) {
  for (const InputSpec& input : spec.inputs) inputs_.insert(input.name);
  for (const AgentSpec& agent : spec.agents) agents_.insert(agent.id);
}

std::optional<Placeholder> PlaceholderNames::find(const std::string& name) const {
  if (inputs_.contains(name)) return Placeholder{Placeholder::Kind::input, name, 0};
  std::optional<Placeholder> found = parse_placeholder(name);
  return found && agents_.contains(found->id) ? found : std::nullopt;
}

void report_unknown_placeholder(const WorkflowSpec& spec, const std::string& owner, const std::string& name,
                                const SourceLocation& where, Diagnostics& diagnostics) {
  const std::string near = diagnostics.full() ? "" : closest_placeholder(spec, name);
  diagnostics.error(where, "E0203", fmt::format("{}: unknown placeholder '{}'", owner, name),
                    near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

}  // namespace baton
