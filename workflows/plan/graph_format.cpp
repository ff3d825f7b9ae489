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

/// What a turn does beside its prompt: tools, calls, and on which condition it runs.
std::vector<std::string> notes_of(const PlannedTurn& turn) {
  std::vector<std::string> notes;
  for (const ToolSpec& tool : turn.tools) {
    if (tool.tool == kAskTool) {
      notes.emplace_back("asks the host");
    } else if (tool.tool == kMcpTool) {
      notes.push_back(fmt::format("server {}", tool.options.at("server")));
    } else {
      notes.push_back(fmt::format("tool {}{}", tool.tool, tool.from.empty() ? "" : " on " + tool.from));
    }
  }
  if (turn.calls) {
    for (const ToolSchema& tool : turn.calls->schemas()) notes.push_back(fmt::format("may call {}", tool.name));
    for (const ServerTools& server : turn.calls->servers())
      notes.push_back(fmt::format("may call tools of server {}", server.server));
  }
  if (turn.when) notes.push_back(fmt::format("when {}", condition_text(*turn.when)));
  return notes;
}

/// The lines of a node in a drawing: its name, its role where that says more, and the notes.
std::vector<std::string> label_of(const Plan& plan, const PlannedTurn& turn) {
  std::vector<std::string> lines = {turn.id};
  if (const std::string& role = role_of(plan, turn); role != turn.agent) lines.push_back(role);
  for (std::string& note : notes_of(turn)) lines.push_back(std::move(note));
  return lines;
}

/// Of each round the indices of its first and its last turn, without the decision.
std::vector<std::pair<int, int>> rounds_of(const Plan& plan) {
  std::vector<std::pair<int, int>> rounds;
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    if (turn.decides) continue;
    if (static_cast<int>(rounds.size()) < turn.round) rounds.emplace_back(i, i);
    rounds.back().second = i;
  }
  return rounds;
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
    for (const std::string& note : notes_of(turn)) out += fmt::format("       {}\n", note);
  }
  if (plan.spec->topology.until)
    out += fmt::format("\nthe rounds end once {}\n", condition_text(*plan.spec->topology.until));
  return out;
}

/// Text in double quotes for mermaid, which reads HTML and signs such as #quot; there.
std::string mermaid_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '<' || c == '>' || c == '&') {
      out += c == '"' ? "#quot;" : c == '<' ? "#lt;" : c == '>' ? "#gt;" : "#amp;";
    } else {
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

/// Text in double quotes for dot.
std::string dot_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

std::string joined(const std::vector<std::string>& lines, std::string (*escaped)(const std::string&), const char* end) {
  std::string out;
  for (const std::string& line : lines) out += (out.empty() ? "" : end) + escaped(line);
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
    out += fmt::format("  {}s{}{}\"{}\"{}\n", boxed ? "  " : "", i, turn.decides ? "{{" : "[",
                       joined(label_of(plan, turn), mermaid_text, "<br/>"), turn.decides ? "}}" : "]");
  }
  if (round > 0) out += "  end\n";
  for (const Edge& edge : edges_of(plan))
    out += fmt::format("  s{} {} s{}\n", edge.from, edge.slots.empty() ? "-.->" : "-->", edge.to);
  if (!plan.spec->topology.until) return out;
  const std::string unless = mermaid_text("unless " + condition_text(*plan.spec->topology.until));
  for (int i = 1; i < plan.rounds; ++i)
    out += fmt::format("  round_{} -.->{} round_{}\n", i, i == 1 ? "|\"" + unless + "\"|" : "", i + 1);
  return out;
}

std::string dot(const Plan& plan) {
  std::string out = fmt::format("digraph \"{}\" {{\n  rankdir=LR;\n  compound=true;\n  node [shape=box];\n",
                                dot_text(plan.spec->name));
  for (int i = 0; i < static_cast<int>(plan.turns.size()); ++i) {
    const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(i)];
    out += fmt::format("  s{} [label=\"{}\"{}];\n", i, joined(label_of(plan, turn), dot_text, "\\n"),
                       turn.decides ? ", shape=diamond" : "");
  }
  const std::vector<std::pair<int, int>> rounds = rounds_of(plan);
  for (std::size_t r = 0; rounds.size() > 1 && r < rounds.size(); ++r) {
    out += fmt::format("  subgraph cluster_{0} {{ label=\"round {0}\";", r + 1);
    for (int i = rounds[r].first; i <= rounds[r].second; ++i) out += fmt::format(" s{};", i);
    out += " }\n";
  }
  for (const Edge& edge : edges_of(plan))
    out += fmt::format("  s{} -> s{}{};\n", edge.from, edge.to, edge.slots.empty() ? " [style=dashed]" : "");
  for (std::size_t r = 1; plan.spec->topology.until && r < rounds.size(); ++r) {
    const std::string unless = dot_text("unless " + condition_text(*plan.spec->topology.until));
    out += fmt::format("  s{} -> s{} [ltail=cluster_{}, lhead=cluster_{}, style=dotted{}];\n", rounds[r - 1].second,
                       rounds[r].first, r, r + 1, r == 1 ? ", label=\"" + unless + "\"" : "");
  }
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
