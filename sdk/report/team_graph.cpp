// SPDX-License-Identifier: Apache-2.0
// graph.json of a record, which is what `baton graph --format json` prints.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "sdk/report/data.h"
#include "sdk/report/fields.h"

namespace baton::cli {

namespace {

/// For each turn the one whose answer its readers got: rounds that end early leave that of the last round that was.
std::vector<std::size_t> said_by(const RunRecord& run) {
  std::map<std::string_view, std::size_t> last;  // by agent
  std::vector<std::size_t> said(run.agents.size());
  for (std::size_t i = 0; i < said.size(); ++i) {
    const AgentRecord& agent = run.agents[i];
    if (agent.state != TurnState::skipped) last[agent.agent] = i;
    const auto found = last.find(agent.agent);
    said[i] = found == last.end() ? i : found->second;
  }
  return said;
}

}  // namespace

TeamGraph read_graph(const std::string& bytes, const std::string& file, const RunRecord& run) {
  const JsonDocument json = RecordFields::parse(bytes, file);
  const RecordFields fields(*json, file, "");
  if (fields.count("schema") != 1) fields.fail("schema", "1");
  TeamGraph graph;
  graph.until = fields.text("until", "");
  graph.conditions.resize(run.agents.size());
  graph.unreached.resize(run.agents.size());
  const std::vector<RecordFields> turns = fields.list("turns");
  if (turns.size() != run.agents.size()) fields.fail("turns", fmt::format("{} turns, as run.json", run.agents.size()));
  std::set<int> begun;
  std::map<std::string, std::size_t> first, last;  // an agent may work twice in a round
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const AgentRecord& agent = run.agents[i];
    if (turns[i].text("agent") != agent.agent) turns[i].fail("agent", fmt::format("'{}', as run.json", agent.agent));
    if (turns[i].count("round") != agent.round) turns[i].fail("round", fmt::format("{}, as run.json", agent.round));
    const std::string id = turns[i].text("id");
    first.emplace(id, i);
    last[id] = i;
    graph.conditions[i] = turns[i].text("when", "");
    graph.unreached[i] = agent.round > 1 && !turns[i].truth("decides", false);
    if (graph.unreached[i] && agent.state != TurnState::skipped) begun.insert(agent.round);
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (begun.count(run.agents[i].round) != 0) graph.unreached[i] = false;
  }
  const std::vector<std::size_t> said = said_by(run);
  for (const RecordFields& edge : fields.list("edges")) {
    const auto from = first.find(edge.text("from")), to = last.find(edge.text("to"));
    if (from == first.end()) edge.fail("from", "the id of a turn");
    if (to == last.end()) edge.fail("to", "the id of a turn");
    if (from->second >= to->second) edge.fail("to", "a turn behind that of 'from'");
    const bool read = run.agents[to->second].state != TurnState::skipped;
    graph.edges.push_back({read ? said[from->second] : from->second, to->second, edge.texts_of("slots")});
  }
  return graph;
}

}  // namespace baton::cli
