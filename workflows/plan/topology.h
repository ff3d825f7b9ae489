// SPDX-License-Identifier: Apache-2.0
// Topology: one round as a graph of turns. The presets and `graph` expand to the same thing; docs/yaml.md describes
// each in a paragraph.
#pragma once

#include <string>
#include <vector>

#include "workflows/format/spec.h"

namespace baton {

/// One turn of one agent in every round.
struct GraphNode {
  std::string id;  // of the step; the agent's in the presets
  std::string agent;
  const NodeSpec* spec = nullptr;  // of a graph
  std::vector<int> needs;          // declared edges of this round, ascending
  std::vector<int> sees;           // turns whose output exists when this one starts, whatever is declared; ascending
};

/// The turns of one round in an order in which each comes after those it needs. Errors go to `diagnostics`; then the
/// result is of no use.
std::vector<GraphNode> expand_topology(const WorkflowSpec& spec, Diagnostics& diagnostics);

}  // namespace baton
