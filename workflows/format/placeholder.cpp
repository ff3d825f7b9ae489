// SPDX-License-Identifier: Apache-2.0
#include "workflows/format/placeholder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "engine/base/json/json_parts.h"
#include "engine/base/json/json_reader.h"
#include "engine/text/schema/schema.h"
#include "engine/text/schema/schema_node.h"

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
  for (const NodeSpec& node : spec.topology.nodes)
    names.push_back(placeholder_name({Placeholder::Kind::agent, node.agent, 0, {}, node.id}));
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

namespace {

/// A name of an agent's output may be one of another agent's thinking.
template <typename HasAgent>
std::optional<Placeholder> placeholder_of(std::optional<Placeholder> found, const HasAgent& has_agent) {
  if (!found || has_agent(found->id)) return found;
  if (found->kind != Placeholder::Kind::agent || !found->id.ends_with(kThinkingSuffix)) return std::nullopt;
  found->id.resize(found->id.size() - kThinkingSuffix.size());
  found->kind = Placeholder::Kind::thinking;
  return has_agent(found->id) ? found : std::nullopt;
}

constexpr std::string_view kStep = "step_";

/// `agent_of`: the agent of a step, or null.
template <typename AgentOf>
std::optional<Placeholder> placeholder_of_step(std::string_view name, const AgentOf& agent_of) {
  if (!name.starts_with(kStep)) return std::nullopt;
  name.remove_prefix(kStep.size());
  const std::optional<int> history = take_suffix(name);
  const std::string step(name);
  const std::string* agent = history ? agent_of(step) : nullptr;
  if (agent == nullptr) return std::nullopt;
  return Placeholder{Placeholder::Kind::agent, *agent, *history, {}, step};
}

}  // namespace

std::string placeholder_name(const Placeholder& placeholder) {
  if (placeholder.kind == Placeholder::Kind::input) return placeholder.id;
  if (placeholder.has_members()) {
    const bool answer = placeholder.kind == Placeholder::Kind::answer;
    std::string name = fmt::format("agent_{}_{}", placeholder.id, answer ? "answer" : "probabilities");
    for (const std::string& member : placeholder.path) name += "." + member;
    return name;
  }
  const bool of_step = !placeholder.step.empty();
  const char* kind = of_step ? "step" : placeholder.kind == Placeholder::Kind::condition ? "condition" : "agent";
  const std::string& id = of_step ? placeholder.step : placeholder.id;
  const std::string_view part = placeholder.kind == Placeholder::Kind::thinking ? kThinkingSuffix : "";
  if (placeholder.history == 0) return fmt::format("{}_{}{}_current", kind, id, part);
  return fmt::format("{}_{}{}_history_{}", kind, id, part, placeholder.history);
}

std::optional<Placeholder> find_placeholder(const WorkflowSpec& spec, const std::string& name) {
  if (is_input(spec, name)) return Placeholder{Placeholder::Kind::input, name, 0};
  const auto agent_of = [&](const std::string& step) -> const std::string* {
    const std::vector<NodeSpec>& nodes = spec.topology.nodes;
    const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const NodeSpec& node) { return node.id == step; });
    return found == nodes.end() ? nullptr : &found->agent;
  };
  if (std::optional<Placeholder> found = placeholder_of_step(name, agent_of)) return found;
  return placeholder_of(parse_placeholder(name), [&](const std::string& id) { return spec.agent(id) != nullptr; });
}

PlaceholderNames::PlaceholderNames(const WorkflowSpec& spec) {
  for (const InputSpec& input : spec.inputs) inputs_.insert(input.name);
  for (const AgentSpec& agent : spec.agents) agents_.insert(agent.id);
  for (const NodeSpec& node : spec.topology.nodes) steps_.emplace(node.id, node.agent);
}

std::optional<Placeholder> PlaceholderNames::find(const std::string& name) const {
  if (inputs_.contains(name)) return Placeholder{Placeholder::Kind::input, name, 0};
  const auto agent_of = [&](const std::string& step) -> const std::string* {
    const auto found = steps_.find(step);
    return found == steps_.end() ? nullptr : &found->second;
  };
  if (std::optional<Placeholder> found = placeholder_of_step(name, agent_of)) return found;
  return placeholder_of(parse_placeholder(name), [&](const std::string& id) { return agents_.contains(id); });
}

void report_unknown_placeholder(const WorkflowSpec& spec, const std::string& owner, const std::string& name,
                                const SourceLocation& where, Diagnostics& diagnostics) {
  const std::string near = diagnostics.full() ? "" : closest_placeholder(spec, name);
  diagnostics.error(where, "E0203", fmt::format("{}: unknown placeholder '{}'", owner, name),
                    near.empty() ? "" : fmt::format("did you mean '{}'?", near));
}

namespace {

using Json = nlohmann::json;

std::optional<std::size_t> index_of(const std::string& member) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(member.data(), member.data() + member.size(), index);
  const bool whole = error == std::errc() && end == member.data() + member.size() && !member.empty();
  return whole && (member == "0" || member.front() != '0') ? std::optional(index) : std::nullopt;
}

/// Returns null for a member that does not exist.
const Json* member_of(const Json& value, const std::string& member) {
  if (value.is_object()) {
    const auto found = value.find(member);
    return found == value.end() ? nullptr : &*found;
  }
  const std::optional<std::size_t> index = value.is_array() ? index_of(member) : std::nullopt;
  return index && *index < value.size() ? &value[*index] : nullptr;
}

/// The schema of a member: null if the member may be anything, nothing if it is excluded. `schema` is valid.
/// `closed`: objects have no properties but those that it names, as they are decoded.
std::optional<const SchemaNode*> member_schema(const SchemaNode& schema, const std::string& member, bool closed) {
  const bool several = schema.reference != nullptr || !schema.all_of.empty() || !schema.any_of.empty() ||
                       !schema.one_of.empty() || schema.condition != nullptr || !schema.dependents.empty() ||
                       !schema.patterns.empty();
  if (several) return nullptr;  // more than one schema says what may be there
  const SchemaTypes types = schema.types != 0 ? schema.types : implied_types(schema);
  if (types == 0) return nullptr;
  const std::optional<std::size_t> index = index_of(member);
  if ((types & kArrayType) != 0 && index) return *index < schema.prefix.size() ? schema.prefix[*index] : schema.items;
  if ((types & kObjectType) == 0) return std::nullopt;
  if (!schema.names_members && schema.others == nullptr) return nullptr;
  if (const SchemaNode* property = schema.property(member)) return property;
  if (schema.others != nullptr) return schema.others->never ? std::nullopt : std::optional(schema.others);
  return closed ? std::nullopt : std::optional<const SchemaNode*>(nullptr);
}

std::string expected_instead(const SchemaNode& schema) {
  std::vector<std::string> names;
  for (const auto& [name, member] : schema.properties) names.push_back(name);
  constexpr std::size_t kMaxShown = 8;
  if (names.empty() || names.size() > kMaxShown) return "";
  return fmt::format("; expected {}{}", names.size() > 1 ? "one of " : "", fmt::join(names, ", "));
}

constexpr std::string_view kBlanks = " \t\r\n";

/// Valid JSON has an end.
std::size_t end_of_value(std::string_view json, std::size_t at) { return value_end(json, at).value_or(json.size()); }

/// A member of an object or a list as it was written: numbers keep their digits. `json`: valid, with that member, and
/// without blanks around it.
std::string_view written_member(std::string_view json, const std::string& member) {
  const auto next = [&](std::size_t at) { return json.find_first_not_of(" \t\r\n,:", at); };
  const bool is_object = json.front() == '{';
  std::string_view found;
  std::size_t index = 0;
  for (std::size_t at = next(1); json[at] != '}' && json[at] != ']'; ++index) {
    std::size_t end = end_of_value(json, at);
    bool is_member = index_of(member) == index;
    if (is_object) {
      const std::string_view key = json.substr(at, end - at);
      is_member = key.find('\\') == std::string_view::npos ? key.substr(1, key.size() - 2) == member
                                                           : read_json(key)->get<std::string>() == member;
      at = next(end);
      end = end_of_value(json, at);
    }
    if (is_member) found = json.substr(at, end - at);  // the last of equal keys counts
    at = next(end);
  }
  return found;
}

/// Valid JSON without the blanks between its parts.
std::string without_blanks(std::string_view json) {
  std::string out;
  for (std::size_t at = 0; at < json.size();) {
    const std::size_t end = json[at] == '"' ? end_of_value(json, at) : at + 1;
    if (kBlanks.find(json[at]) == std::string_view::npos) out += json.substr(at, end - at);
    at = end;
  }
  return out;
}

/// Returns a null value, which has no members, for a text that is not JSON.
JsonDocument parsed(const std::string& text) {
  try {
    return read_json(text);
  } catch (const JsonError&) {
    return {};
  }
}

}  // namespace

/// Null for an invalid schema, which the file's reader has reported.
const Schema* AnswerChecker::schema_of(const AgentSpec& agent) {
  std::shared_ptr<const Schema>& schema = schemas_[agent.id];
  if (schema == nullptr) schema = std::make_shared<const Schema>(agent.output.schema);
  return schema->mistakes().empty() ? schema.get() : nullptr;
}

void AnswerChecker::check(const Placeholder& placeholder, const std::string& owner, const SourceLocation& where,
                          Diagnostics& diagnostics) {
  if (!placeholder.has_members()) return;
  const std::string problem = problem_of(placeholder, *spec_.agent(placeholder.id));
  if (problem.empty()) return;
  diagnostics.error(
      where, "E0209",
      fmt::format("{}: '{}': agent '{}' {}", owner, placeholder_name(placeholder), placeholder.id, problem));
}

std::string AnswerChecker::problem_of(const Placeholder& placeholder, const AgentSpec& agent) {
  const std::vector<std::string>& path = placeholder.path;
  if (placeholder.kind == Placeholder::Kind::probabilities) {
    const std::vector<std::string>& texts = agent.output.texts;
    if (!agent.output.choose) return "has no 'output' with 'choose'";
    if (path.empty() || (path.size() == 1 && std::find(texts.begin(), texts.end(), path.front()) != texts.end()))
      return {};
    return fmt::format("has no choice '{}'; expected one of {}", fmt::join(path, "."), fmt::join(texts, ", "));
  }
  if (!agent.output.has_answer()) return "has no 'output' that says what its answer is";
  if (path.empty()) return {};
  if (agent.output.schema.empty()) return fmt::format("answers with a text, which has no '{}'", path.front());
  const Schema* schema = schema_of(agent);
  const SchemaNode* at = schema == nullptr ? nullptr : &schema->root();
  for (const std::string& member : path) {
    while (at != nullptr && at->reference != nullptr && implied_types(*at) == 0 && at->types == 0) at = at->reference;
    if (at == nullptr) return {};  // any value
    const auto next = member_schema(*at, member, agent.output.enforce);
    if (!next) return fmt::format("has a schema without '{}'{}", fmt::join(path, "."), expected_instead(*at));
    at = *next;
  }
  return {};
}

std::map<std::string, std::string> answer_texts(const std::string& answer,
                                                const std::map<std::string, Placeholder>& names) {
  std::map<std::string, std::string> texts;
  std::optional<JsonDocument> root;
  for (const auto& [name, placeholder] : names) {
    if (placeholder.path.empty()) {
      texts.emplace(name, answer);
      continue;
    }
    if (!root) root = parsed(answer);
    const Json* at = &**root;
    std::string_view written = answer;
    written.remove_prefix(std::min(written.find_first_not_of(kBlanks), written.size()));
    for (const std::string& member : placeholder.path) {
      at = member_of(*at, member);
      if (at == nullptr) break;
      written = written_member(written, member);
    }
    if (at == nullptr) continue;
    texts.emplace(name, at->is_string() ? at->get<std::string>() : without_blanks(written));
  }
  return texts;
}

}  // namespace baton
