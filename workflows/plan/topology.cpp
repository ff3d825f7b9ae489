// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "workflows/format/placeholder.h"

namespace baton {
namespace {

std::vector<int> range(int begin, int end) {
  std::vector<int> out;
  for (int i = begin; i < end; ++i) out.push_back(i);
  return out;
}

/// A preset's turns, in the order of the agents, without edges.
std::vector<GraphNode> nodes_of(const std::vector<std::string>& agents) {
  std::vector<GraphNode> nodes;
  for (const std::string& agent : agents) nodes.push_back({agent, agent, nullptr, {}, {}});
  return nodes;
}

std::vector<GraphNode> layered(const TopologySpec& topology) {
  std::vector<GraphNode> nodes;
  int last_begin = 0;
  for (const std::vector<std::string>& layer : topology.layers) {
    const int begin = static_cast<int>(nodes.size());
    for (const std::string& agent : layer)
      nodes.push_back({agent, agent, nullptr, range(last_begin, begin), range(0, begin)});
    last_begin = begin;
  }
  return nodes;
}

/// `topology: graph`: the nodes with their needs, in topological order.
class GraphExpansion {
 public:
  GraphExpansion(const WorkflowSpec& spec, Diagnostics& diagnostics)
      : spec_(spec), specs_(spec.topology.nodes), needs_(specs_.size()), diagnostics_(diagnostics) {}

  std::vector<GraphNode> expand() {
    const PlaceholderNames names(spec_);
    for (int i = 0; i < count(); ++i) needs_[i] = specs_[i].infers_needs ? inferred(i, names) : declared(i);
    const std::vector<int> order = sorted();
    if (order.empty()) return {};
    std::vector<int> position(specs_.size());
    for (int i = 0; i < count(); ++i) position[order[i]] = i;
    std::vector<GraphNode> nodes;
    for (const int old : order) {
      std::set<int> needs, sees;
      for (const int need : needs_[old]) {
        needs.insert(position[need]);
        sees.insert(nodes[position[need]].sees.begin(), nodes[position[need]].sees.end());
      }
      sees.insert(needs.begin(), needs.end());
      const NodeSpec& spec = specs_[old];
      nodes.push_back({spec.id, spec.agent, &spec, {needs.begin(), needs.end()}, {sees.begin(), sees.end()}});
    }
    return nodes;
  }

 private:
  int count() const { return static_cast<int>(specs_.size()); }

  std::set<int> declared(int index) const {
    std::set<int> needs;
    for (int i = 0; i < count(); ++i) {
      const auto& names = specs_[index].needs;
      if (std::find(names.begin(), names.end(), specs_[i].id) != names.end()) needs.insert(i);
    }
    return needs;
  }

  /// The nodes behind everything that the prompt, the tools and the condition name.
  std::set<int> inferred(int index, const PlaceholderNames& names) const {
    std::set<int> needs;
    const auto add_agent = [&](const std::string& agent) {
      if (const auto node = node_of(agent, index)) needs.insert(*node);
    };
    const auto add = [&](const std::string& name) {
      const auto found = names.find(name);
      const bool own_result = found && found->kind == Placeholder::Kind::condition && found->id == specs_[index].agent;
      if (!found || found->kind == Placeholder::Kind::input || found->history > 0 || own_result) return;
      if (found->step.empty()) return add_agent(found->id);
      for (int i = 0; i < count(); ++i) {
        if (specs_[i].id == found->step && i != index) needs.insert(i);
      }
    };
    const AgentSpec& agent = *spec_.agent(specs_[index].agent);
    for (const MessageSpec& message : agent.messages) {
      for (const PromptItem& item : message.items) {
        for (const TemplatePiece& piece : item.pieces) add(piece.placeholder);
      }
    }
    for (const ToolSpec& tool : agent.tools)
      tool.for_each_placeholder([&](const std::string& name, const SourceLocation&) { add(name); });
    if (const std::optional<ConditionSpec>& when = specs_[index].when; when && when->expression) {
      for (const ValueExpression::Name& name : when->expression->names()) add(name.name);
    } else if (when) {
      add_agent(when->agent);
    }
    return needs;
  }

  /// The turn of an agent that a node without `needs` means: the last one listed before it, otherwise the first after.
  std::optional<int> node_of(const std::string& agent, int index) const {
    std::optional<int> found;
    for (int i = 0; i < count(); ++i) {
      if (i == index || specs_[i].agent != agent) continue;
      if (i < index || !found) found = i;
    }
    if (agent == specs_[index].agent && found && *found > index) return std::nullopt;  // its own later turn
    return found;
  }

  /// Nodes in topological order, otherwise in the order of the file. Empty, with an error, for a cycle.
  std::vector<int> sorted() {
    std::vector<int> order;
    std::vector<bool> done(specs_.size());
    while (static_cast<int>(order.size()) < count()) {
      const auto is_ready = [&](int i) {
        return !done[i] && std::all_of(needs_[i].begin(), needs_[i].end(), [&](int need) { return done[need]; });
      };
      int next = 0;
      while (next < count() && !is_ready(next)) ++next;
      if (next == count()) {
        report_cycle(done);
        return {};
      }
      done[next] = true;
      order.push_back(next);
    }
    return order;
  }

  /// Following the needs of any remaining node ends in a cycle.
  void report_cycle(const std::vector<bool>& done) {
    int at = 0;
    while (done[at]) ++at;
    std::vector<int> path;
    while (std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      at = *std::find_if(needs_[at].begin(), needs_[at].end(), [&](int need) { return !done[need]; });
    }
    path.erase(path.begin(), std::find(path.begin(), path.end(), at));
    std::reverse(path.begin(), path.end());  // in the direction of the data
    std::rotate(path.begin(), std::min_element(path.begin(), path.end()), path.end());
    path.push_back(path.front());
    std::vector<std::string> names;
    for (const int i : path) names.push_back(specs_[i].id);
    diagnostics_.error(specs_[path.front()].where, "E0306",
                       fmt::format("the steps depend on each other: {}", fmt::join(names, " -> ")),
                       "an output of the last round is named '_history_1'");
  }

  const WorkflowSpec& spec_;
  const std::vector<NodeSpec>& specs_;
  std::vector<std::set<int>> needs_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::vector<GraphNode> expand_topology(const WorkflowSpec& spec, Diagnostics& diagnostics) {
  const TopologySpec& topology = spec.topology;
  if (topology.kind == Topology::graph) return GraphExpansion(spec, diagnostics).expand();
  if (topology.kind == Topology::layered) return layered(topology);
  std::vector<GraphNode> nodes = nodes_of(topology.agents);
  std::stable_partition(nodes.begin(), nodes.end(),
                        [&](const GraphNode& node) { return node.agent != topology.center; });
  const int count = static_cast<int>(nodes.size());
  for (int i = 1; i < count; ++i) {
    if (topology.kind == Topology::chain) {
      nodes[i].needs = {i - 1};
      nodes[i].sees = range(0, i);  // all before it are over: the chain gives the order
    } else if (topology.kind == Topology::fully_connected || (topology.kind == Topology::star && i == count - 1)) {
      nodes[i].needs = nodes[i].sees = range(0, i);
    }
  }
  return nodes;
}

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

std::optional<int> Visibility::node_of(const Placeholder& placeholder, const GraphNode& viewer) const {
  if (placeholder.step.empty()) return node_of(placeholder.id, viewer);
  const std::optional<int> node = last_node_of(placeholder);
  return node && std::binary_search(viewer.sees.begin(), viewer.sees.end(), *node) ? node : std::nullopt;
}

std::optional<int> Visibility::last_node_of(const Placeholder& placeholder) const {
  if (placeholder.step.empty()) return last_node_of(placeholder.id);
  const auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const GraphNode& node) { return node.id == placeholder.step; });
  return found == nodes_.end() ? std::nullopt : std::optional(static_cast<int>(found - nodes_.begin()));
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
  if (placeholder.history == 0 && (own_result || node_of(placeholder, viewer))) return std::nullopt;

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
  const std::string last_round = none ? ""
                                      : fmt::format("write '{}' for that of the last round",
                                                    placeholder_name({placeholder.kind, id, 1, {}, placeholder.step}));
  const auto refuse = [&](std::string why, const std::string& otherwise) {
    return Refusal{"E0304", "does not exist yet: " + std::move(why), last_round.empty() ? otherwise : last_round};
  };
  if (id == viewer.agent && (placeholder.step.empty() || placeholder.step == viewer.id))
    return refuse("it is the agent's own output of this round", "");
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
      const GraphNode& other = nodes_[static_cast<std::size_t>(*last_node_of(placeholder))];
      const auto sees_viewer = [&](const GraphNode& node) {
        return node.agent == id && (placeholder.step.empty() || node.id == placeholder.step) &&
               std::any_of(node.sees.begin(), node.sees.end(),
                           [&](int i) { return nodes_[static_cast<std::size_t>(i)].id == viewer.id; });
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
