// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/visibility.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {

Visibility::Visibility(const WorkflowSpec& spec, const std::vector<GraphNode>& nodes)
    : spec_(spec), nodes_(nodes), names_(spec) {
  for (std::size_t i = 0; i < nodes.size(); ++i) nodes_of_[nodes[i].agent].push_back(static_cast<int>(i));
}

std::optional<int> Visibility::node_of(const std::string& agent, const GraphNode& viewer) const {
  const auto found = nodes_of_.find(agent);
  if (found == nodes_of_.end()) return std::nullopt;
  const auto last = std::find_if(found->second.rbegin(), found->second.rend(), [&](int node) {
    return std::binary_search(viewer.sees.begin(), viewer.sees.end(), node);
  });
  return last == found->second.rend() ? std::nullopt : std::optional(*last);
}

std::optional<int> Visibility::last_node_of(const std::string& agent) const {
  const auto found = nodes_of_.find(agent);
  return found == nodes_of_.end() ? std::nullopt : std::optional(found->second.back());
}

void Visibility::check(const GraphNode& viewer, Diagnostics& diagnostics) const {
  const AgentSpec& agent = *spec_.agent(viewer.agent);
  std::string owner = fmt::format("agent '{}'", agent.id);
  if (viewer.id != viewer.agent) owner += fmt::format(" in step '{}'", viewer.id);

  const auto check_name = [&](const std::string& name, const SourceLocation& where) {
    const std::optional<Placeholder> placeholder = names_.find(name);
    if (!placeholder) return;  // reported when the file was read, or of a loop
    if (const std::optional<Refusal> no = refusal(*placeholder, viewer)) {
      diagnostics.error(where, no->code, fmt::format("{}: '{}' {}", owner, name, no->reason), no->hint);
    }
  };
  for (const MessageSpec& message : agent.messages) {
    for (const PromptItem& item : message.items) {
      for (std::size_t i = 0; i < item.pieces.size(); ++i) check_name(item.pieces[i].placeholder, item.place(i));
    }
  }
  for (const ToolSpec& tool : agent.tools) tool.for_each_placeholder(check_name);

  const NodeSpec* spec = viewer.spec;
  if (spec == nullptr || !spec->when) return;
  if (spec->when->expression) {
    owner = fmt::format("step '{}': when", viewer.id);
    for (std::size_t i = 0; i < spec->when->name_where.size(); ++i) {
      const std::string& name = spec->when->expression->names()[i].name;
      const std::optional<Placeholder> placeholder = names_.find(name);
      const bool own_result =
          placeholder && placeholder->kind == Placeholder::Kind::condition && placeholder->id == viewer.agent;
      if (own_result && placeholder->history == 0)
        diagnostics.error(spec->when->name_where[i], "E0310",
                          fmt::format("{}: '{}' is known only when the step's own tools have run", owner, name));
      else
        check_name(name, spec->when->name_where[i]);
    }
  } else if (!node_of(spec->when->agent, viewer)) {
    diagnostics.error(
        spec->when->where, "E0310",
        fmt::format("step '{}': when: the step does not depend on agent '{}'", viewer.id, spec->when->agent),
        fmt::format("add a step of '{}' to 'needs'", spec->when->agent));
  }
}

std::optional<Visibility::Refusal> Visibility::refusal(const Placeholder& placeholder, const GraphNode& viewer) const {
  if (placeholder.kind == Placeholder::Kind::input) return std::nullopt;
  const std::string& id = placeholder.id;
  const bool own_result = placeholder.kind == Placeholder::Kind::condition && id == viewer.agent;
  if (placeholder.history == 0 && (own_result || node_of(id, viewer))) return std::nullopt;

  if (id == spec_.topology.then) {
    return Refusal{"E0304", fmt::format("cannot exist: '{}' decides once, after the last round", id), ""};
  }
  if (!last_node_of(id))
    return Refusal{"E0304", fmt::format("cannot exist: '{}' takes no part in the workflow", id), ""};
  if (placeholder.history == 0) return not_yet(placeholder, viewer);
  const int rounds = spec_.topology.rounds;
  if (placeholder.history < rounds) return std::nullopt;
  return Refusal{"E0305",
                 fmt::format("reaches back {} round{}, and there {} {} in all", placeholder.history,
                             placeholder.history == 1 ? "" : "s", rounds == 1 ? "is" : "are", rounds),
                 fmt::format("set 'rounds' to at least {}", placeholder.history + 1)};
}

Visibility::Refusal Visibility::not_yet(const Placeholder& placeholder, const GraphNode& viewer) const {
  const std::string& id = placeholder.id;
  const bool none = spec_.topology.rounds == 1 || placeholder.has_members();
  const std::string last_round =
      none ? "" : fmt::format("write '{}' for that of the last round", placeholder_name({placeholder.kind, id, 1}));
  const auto refuse = [&](std::string why, const std::string& otherwise) {
    return Refusal{"E0304", "does not exist yet: " + std::move(why), last_round.empty() ? otherwise : last_round};
  };
  if (id == viewer.agent) return refuse("it is the agent's own output of this round", "");
  switch (spec_.topology.kind) {
    case Topology::parallel:
      return refuse(fmt::format("'{}' runs at the same time ('topology: parallel')", id),
                    "choose 'topology: chain' or 'fully_connected'");
    case Topology::debate:
      return refuse(fmt::format("in a debate '{}' runs at the same time", id),
                    "set 'rounds' to 2 or more, and name the last round's output");
    case Topology::star:
      return refuse(fmt::format("in a star only the center '{}' sees others", spec_.topology.center), "");
    case Topology::layered:
      return refuse(fmt::format("'{}' is not in an earlier layer", id),
                    fmt::format("move '{}' to an earlier layer", id));
    case Topology::graph: {
      const GraphNode& other = nodes_[static_cast<std::size_t>(*last_node_of(id))];
      const auto sees_viewer = [&](const GraphNode& node) {
        return node.agent == id && std::any_of(node.sees.begin(), node.sees.end(), [&](int i) {
                 return nodes_[static_cast<std::size_t>(i)].id == viewer.id;
               });
      };
      if (std::any_of(nodes_.begin(), nodes_.end(), sees_viewer)) {
        return refuse(fmt::format("step '{}' waits for step '{}'", other.id, viewer.id), "");
      }
      return {"E0304", fmt::format("may not exist yet: step '{}' does not depend on '{}'", viewer.id, other.id),
              fmt::format("add '{}' to its 'needs'", other.id)};
    }
    default:
      return refuse(fmt::format("'{}' runs after '{}'", id, viewer.agent),
                    fmt::format("list '{}' before '{}'", id, viewer.agent));
  }
}

}  // namespace baton
