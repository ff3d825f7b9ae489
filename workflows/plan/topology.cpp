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
std::vector<GraphNode> turns_of(const std::vector<std::string>& agents) {
  std::vector<GraphNode> turns;
  for (const std::string& agent : agents) turns.push_back({agent, agent, nullptr, {}, {}});
  return turns;
}

std::vector<GraphNode> layered(const TopologySpec& topology) {
  std::vector<GraphNode> turns;
  int last_begin = 0;
  for (const std::vector<std::string>& layer : topology.layers) {
    const int begin = static_cast<int>(turns.size());
    for (const std::string& agent : layer)
      turns.push_back({agent, agent, nullptr, range(last_begin, begin), range(0, begin)});
    last_begin = begin;
  }
  return turns;
}

/// `topology: graph`: what its steps need, in an order that respects it.
class GraphExpansion {
 public:
  GraphExpansion(const WorkflowSpec& spec, Diagnostics& diagnostics)
      : spec_(spec), steps_(spec.topology.steps), needs_(steps_.size()), diagnostics_(diagnostics) {}

  std::vector<GraphNode> expand() {
    for (int i = 0; i < count(); ++i) needs_[i] = steps_[i].infers_needs ? inferred(i) : declared(i);
    const std::vector<int> order = sorted();
    if (order.empty()) return {};
    std::vector<int> position(steps_.size());
    for (int i = 0; i < count(); ++i) position[order[i]] = i;
    std::vector<GraphNode> turns;
    for (const int old : order) {
      std::set<int> needs, sees;
      for (const int need : needs_[old]) {
        needs.insert(position[need]);
        sees.insert(turns[position[need]].sees.begin(), turns[position[need]].sees.end());
      }
      sees.insert(needs.begin(), needs.end());
      const StepSpec& step = steps_[old];
      turns.push_back({step.id, step.agent, &step, {needs.begin(), needs.end()}, {sees.begin(), sees.end()}});
    }
    return turns;
  }

 private:
  int count() const { return static_cast<int>(steps_.size()); }

  std::set<int> declared(int index) const {
    std::set<int> needs;
    for (int i = 0; i < count(); ++i) {
      const auto& names = steps_[index].needs;
      if (std::find(names.begin(), names.end(), steps_[i].id) != names.end()) needs.insert(i);
    }
    return needs;
  }

  /// The steps behind everything that the prompt, the tools and the condition name.
  std::set<int> inferred(int index) const {
    std::set<int> needs;
    const auto add_agent = [&](const std::string& agent) {
      if (const auto step = step_of(agent, index)) needs.insert(*step);
    };
    const auto add = [&](const std::string& name) {
      const auto found = find_placeholder(spec_, name);
      const bool own_result = found && found->kind == Placeholder::Kind::condition && found->id == steps_[index].agent;
      if (found && found->kind != Placeholder::Kind::input && found->history == 0 && !own_result) add_agent(found->id);
    };
    const AgentSpec& agent = *spec_.agent(steps_[index].agent);
    for (const MessageSpec& message : agent.messages) {
      for (const PromptItem& item : message.items) {
        for (const TemplatePiece& piece : item.pieces) add(piece.placeholder);
      }
    }
    for (const ToolSpec& tool : agent.tools) add(tool.from);
    if (steps_[index].when) add_agent(steps_[index].when->agent);
    return needs;
  }

  /// The turn of an agent that a step without `needs` means: the last one listed before it, otherwise the first after.
  std::optional<int> step_of(const std::string& agent, int index) const {
    std::optional<int> found;
    for (int i = 0; i < count(); ++i) {
      if (i == index || steps_[i].agent != agent) continue;
      if (i < index || !found) found = i;
    }
    if (agent == steps_[index].agent && found && *found > index) return std::nullopt;  // its own later turn
    return found;
  }

  /// Steps after what they need, otherwise in the order of the file. Empty, with an error, for a cycle.
  std::vector<int> sorted() {
    std::vector<int> order;
    std::vector<bool> done(steps_.size());
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

  /// From any step left over, following what is needed ends in a circle.
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
    for (const int i : path) names.push_back(steps_[i].id);
    diagnostics_.error(steps_[path.front()].where, "E0306",
                       fmt::format("the steps wait for each other: {}", fmt::join(names, " -> ")),
                       "an output of the last round is named '_history_1'");
  }

  const WorkflowSpec& spec_;
  const std::vector<StepSpec>& steps_;
  std::vector<std::set<int>> needs_;
  Diagnostics& diagnostics_;
};

}  // namespace

std::vector<GraphNode> expand_topology(const WorkflowSpec& spec, Diagnostics& diagnostics) {
  const TopologySpec& topology = spec.topology;
  if (topology.kind == Topology::graph) return GraphExpansion(spec, diagnostics).expand();
  if (topology.kind == Topology::layered) return layered(topology);
  std::vector<GraphNode> turns = turns_of(topology.agents);
  std::stable_partition(turns.begin(), turns.end(),
                        [&](const GraphNode& turn) { return turn.agent != topology.center; });
  const int count = static_cast<int>(turns.size());
  for (int i = 1; i < count; ++i) {
    if (topology.kind == Topology::chain) {
      turns[i].needs = {i - 1};
      turns[i].sees = range(0, i);  // all before it are over: the chain gives the order
    } else if (topology.kind == Topology::fully_connected || (topology.kind == Topology::star && i == count - 1)) {
      turns[i].needs = turns[i].sees = range(0, i);
    }
  }
  return turns;
}

}  // namespace baton
