// SPDX-License-Identifier: Apache-2.0
// Topology: one round as a graph of turns. The presets and `graph` expand to the same thing; docs/yaml.md describes
// each in a paragraph.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "workflows/format/placeholder.h"
#include "workflows/format/spec.h"

namespace baton {

/// One turn of one agent in every round.
struct GraphNode {
  std::string id;  // the step's id; the agent's in the presets
  std::string agent;
  const NodeSpec* spec = nullptr;  // in a graph, the node's spec
  std::vector<int> needs;          // declared edges of this round, ascending
  std::vector<int> sees;           // turns whose output exists when this one starts, whatever is declared; ascending
};

/// The turns of one round in an order in which each comes after those it needs. Errors go to `diagnostics`; then the
/// result is of no use.
std::vector<GraphNode> expand_topology(const WorkflowSpec& spec, Diagnostics& diagnostics);

/// Says which outputs the turns of a round can see; the decision agent is one more turn that sees all of them.
class Visibility {
 public:
  Visibility(const WorkflowSpec& spec, const std::vector<GraphNode>& nodes);

  /// The turn of the same round whose output a placeholder without history stands for; empty: there is no such output
  /// yet.
  std::optional<int> node_of(const std::string& agent, const GraphNode& viewer) const;
  std::optional<int> node_of(const Placeholder& placeholder, const GraphNode& viewer) const;

  /// The last turn of an agent in a round, or the turn of the placeholder's step.
  std::optional<int> last_node_of(const std::string& agent) const;
  std::optional<int> last_node_of(const Placeholder& placeholder) const;

  /// Reports everything that the turn's prompt, tools and condition name and that cannot exist.
  void check(const GraphNode& viewer, Diagnostics& diagnostics) const;

 private:
  struct Refusal {
    std::string code, reason, hint;
  };
  std::optional<Refusal> refusal(const Placeholder& placeholder, const GraphNode& viewer) const;
  Refusal not_yet(const Placeholder& placeholder, const GraphNode& viewer) const;

  const WorkflowSpec& spec_;
  const std::vector<GraphNode>& nodes_;
  PlaceholderNames names_;
  std::unordered_map<std::string, std::vector<int>> nodes_of_;  // an agent; ascending
};

}  // namespace baton
