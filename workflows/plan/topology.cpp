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
      if (found && found->kind != Placeholder::Kind::input && found->history == 0 && !own_result) add_agent(found->id);
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

}  // namespace baton
