// SPDX-License-Identifier: Apache-2.0
// The expanded graph for people and programs: ascii, mermaid, dot, json.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "agents/mcp/tools.h"
#include "workflows/plan/plan.h"

namespace baton {
namespace {

struct Edge {
  int from = 0;
  int to = 0;
  std::vector<std::string> slots;  // placeholders that carry the output; none: the edge is only an order
};

std::vector<Edge> edges_of(const Plan& plan, int to) {
  const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(to)];
  std::vector<Edge> edges;
  for (const int need : turn.needs) edges.push_back({need, to, {}});
  for (const SlotSource& slot : turn.slots) {
    const auto need = std::lower_bound(turn.needs.begin(), turn.needs.end(), slot.turn);
    if (need != turn.needs.end() && *need == slot.turn)
      edges[static_cast<std::size_t>(need - turn.needs.begin())].slots.push_back(slot.name);
  }
  return edges;
}

std::vector<Edge> edges_of(const Plan& plan) {
  std::vector<Edge> edges;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    for (Edge& edge : edges_of(plan, i)) edges.push_back(std::move(edge));
  }
  return edges;
}

const std::string& id_of(const Plan& plan, int turn) { return plan.turns[static_cast<std::size_t>(turn)].id; }
const std::string& role_of(const Plan& plan, const PlannedTurn& turn) { return plan.spec->agent(turn.agent)->role; }

std::string condition_text(const ConditionSpec& condition) {
  if (condition.expression) return condition.expression->source();
  return fmt::format("{} {} /{}/", condition.agent, condition.negate ? "does not match" : "matches", condition.matches);
}

std::string title(const Plan& plan) {
  const TopologySpec& topology = plan.spec->topology;
  std::string out =
      fmt::format("{}: {}, {} agent{}, {} round{}", plan.spec->name, name_of(topology.kind), topology.agents.size(),
                  topology.agents.size() == 1 ? "" : "s", plan.rounds, plan.rounds == 1 ? "" : "s");
  if (!topology.then.empty()) out += ", then " + topology.then;
  return out + fmt::format(", relay {}", plan.relay);
}

/// Turns that start together, within one round: one more than the highest level they wait for.
std::vector<int> levels_of(const Plan& plan) {
  std::vector<int> levels;
  for (const PlannedTurn& turn : plan.turns) {
    int level = 1;
    for (const int need : turn.needs) {
      if (plan.turns[static_cast<std::size_t>(need)].round == turn.round)
        level = std::max(level, levels[static_cast<std::size_t>(need)] + 1);
    }
    levels.push_back(level);
  }
  return levels;
}

/// "analyst, inspector#2": the turns whose output a turn reads, and separately those that it only waits for.
std::string ascii_edges(const Plan& plan, int index) {
  std::vector<std::string> given, awaited;
  for (const Edge& edge : edges_of(plan, index))
    (edge.slots.empty() ? awaited : given).push_back(id_of(plan, edge.from));
  std::string out;
  if (!given.empty()) out += fmt::format("  <-- {}", fmt::join(given, ", "));
  if (!awaited.empty())
    out += fmt::format("  {}{}", given.empty() ? "... after " : "(and after ", fmt::join(awaited, ", "));
  if (!awaited.empty() && !given.empty()) out += ")";
  return out;
}

std::string ascii(const Plan& plan) {
  std::size_t width = 0;
  for (const PlannedTurn& turn : plan.turns) width = std::max(width, turn.id.size());
  const std::vector<int> levels = levels_of(plan);
  std::string out = title(plan) + "\n";
  int round = 0, level = 0;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    if (turn.decides) {
      out += "\nthen\n";
      level = 0;
    } else if (turn.round != round) {
      out += fmt::format("\nround {}\n", turn.round);
      level = 0;
    }
    const int own_level = levels[static_cast<std::size_t>(i)];
    out += turn.decides ? "  *" : own_level == level ? "   " : fmt::format("{:3}", own_level);
    level = own_level;
    round = turn.round;
    const std::string edges = ascii_edges(plan, i);
    out += edges.empty() ? fmt::format("  {}\n", turn.id) : fmt::format("  {:<{}}{}\n", turn.id, width, edges);
    for (const ToolSpec& tool : turn.tools) {
      if (tool.tool == kAskTool) {
        out += "       asks the host\n";
      } else if (tool.tool == kMcpTool) {
        out += fmt::format("       server {}\n", tool.options.at("server"));
      } else {
        out += fmt::format("       tool {}{}\n", tool.tool, tool.from.empty() ? "" : " on " + tool.from);
      }
    }
    if (turn.calls) {
      for (const ToolSchema& tool : turn.calls->schemas()) out += fmt::format("       may call {}\n", tool.name);
      for (const ServerTools& server : turn.calls->servers())
        out += fmt::format("       may call tools of server {}\n", server.server);
    }
    if (turn.when) out += fmt::format("       when {}\n", condition_text(*turn.when));
  }
  if (plan.spec->topology.until)
    out += fmt::format("\nthe rounds end once {}\n", condition_text(*plan.spec->topology.until));
  return out;
}

/// Text in double quotes for dot and mermaid.
std::string escaped(const std::string& text, const char* quote) {
  std::string out;
  for (const char c : text) {
    if (c == '"') {
      out += quote;
    } else if (c == '\\') {
      out += "\\\\";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string mermaid(const Plan& plan) {
  std::string out = "flowchart TD\n";
  int round = 0;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    const bool boxed = plan.rounds > 1 && !turn.decides;
    if (round > 0 && (!boxed || turn.round != round)) {
      out += "  end\n";
      round = 0;
    }
    if (boxed && round == 0) {
      out += fmt::format("  subgraph round_{0} [\"round {0}\"]\n", turn.round);
      round = turn.round;
    }
    const std::string role = role_of(plan, turn);
    const std::string label = role == turn.agent ? turn.id : turn.id + "<br/>" + escaped(role, "#quot;");
    out += fmt::format("  {}s{}{}\"{}\"{}\n", boxed ? "  " : "", i, turn.decides ? "{{" : "[", label,
                       turn.decides ? "}}" : "]");
  }
  if (round > 0) out += "  end\n";
  for (const Edge& edge : edges_of(plan))
    out += fmt::format("  s{} {} s{}\n", edge.from, edge.slots.empty() ? "-.->" : "-->", edge.to);
  return out;
}

std::string dot(const Plan& plan) {
  std::string out =
      fmt::format("digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box];\n", escaped(plan.spec->name, "\\\""));
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    out += fmt::format("  s{} [label=\"{}\\n{}\"{}];\n", i, turn.id, escaped(role_of(plan, turn), "\\\""),
                       turn.decides ? ", shape=diamond" : "");
  }
  for (const Edge& edge : edges_of(plan))
    out += fmt::format("  s{} -> s{}{};\n", edge.from, edge.to, edge.slots.empty() ? " [style=dashed]" : "");
  return out + "}\n";
}

nlohmann::ordered_json json_of(const Plan& plan, int index) {
  const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(index)];
  auto slots = nlohmann::ordered_json::array();
  for (const SlotSource& slot : turn.slots) {
    static constexpr const char* kKinds[] = {"input", "agent_output", "agent_answer", "tool_result", "empty"};
    nlohmann::ordered_json one = {{"name", slot.name},
                                  {"kind", kKinds[static_cast<int>(slot.kind)]},
                                  {"method", slot.method->name},
                                  {"reason", slot.reason}};
    if (slot.turn >= 0) one["turn"] = id_of(plan, slot.turn);
    slots.push_back(std::move(one));
  }
  nlohmann::ordered_json out = {
      {"id", turn.id},           {"agent", turn.agent}, {"role", role_of(plan, turn)}, {"round", turn.round},
      {"decides", turn.decides}, {"model", turn.model}, {"slots", std::move(slots)}};
  if (turn.when) out["when"] = condition_text(*turn.when);
  return out;
}

std::string json(const Plan& plan) {
  auto turns = nlohmann::ordered_json::array(), edges = nlohmann::ordered_json::array();
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) turns.push_back(json_of(plan, i));
  for (const Edge& edge : edges_of(plan)) {
    edges.push_back({{"from", id_of(plan, edge.from)}, {"to", id_of(plan, edge.to)}, {"slots", edge.slots}});
  }
  nlohmann::ordered_json out = {{"schema", 1},
                                {"workflow", plan.spec->name},
                                {"topology", name_of(plan.spec->topology.kind)},
                                {"relay", plan.relay},
                                {"rounds", plan.rounds}};
  if (plan.spec->topology.until) out["until"] = condition_text(*plan.spec->topology.until);
  out["turns"] = std::move(turns);
  out["edges"] = std::move(edges);
  return out.dump(2) + "\n";
}

}  // namespace

std::string format_graph(const Plan& plan, const std::string& format) {
  if (format == "ascii") return ascii(plan);
  if (format == "mermaid") return mermaid(plan);
  if (format == "dot") return dot(plan);
  if (format == "json") return json(plan);
  throw std::invalid_argument(
      fmt::format("unknown graph format '{}'; expected one of ascii, mermaid, dot, json", format));
}

}  // namespace baton
