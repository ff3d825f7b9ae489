// SPDX-License-Identifier: Apache-2.0
// Every topology with its edges written out by hand.
#include <catch2/catch.hpp>

#include "tests/support/workflow_files.h"

namespace baton::test::topology_test {
namespace {

/// "c: a b; ..." for each turn that needs others, in the order of the plan; turns alone stand as "a;".
std::string edges(const Plan& plan) {
  std::string out;
  for (const PlannedTurn& turn : plan.turns) {
    out += (out.empty() ? "" : " ") + turn.id;
    for (std::size_t i = 0; i < turn.needs.size(); ++i) {
      out += (i == 0 ? ": " : " ") + plan.turns[static_cast<std::size_t>(turn.needs[i])].id;
    }
    out += ";";
  }
  return out;
}

/// Agents a, b, c, d that name nobody, and a workflow section.
std::string edges_of(const std::string& workflow, const std::string& agents = "abcd") {
  std::string yaml = "agents:\n";
  for (const char id : agents) yaml += "  " + std::string(1, id) + ": {prompt: hello}\n";
  return edges(plan(with_header(yaml + "workflow: {" + workflow + "}\n")));
}

TEST_CASE("presets expand to these edges") {
  CHECK(edges(plan(with_header("agents: {a: {prompt: hello}}"))) == "a;");
  CHECK(edges_of("topology: single, agents: [b]") == "b;");
  CHECK(edges_of("topology: chain") == "a; b: a; c: b; d: c;");
  CHECK(edges_of("topology: chain, agents: [c, a]") == "c; a: c;");
  CHECK(edges_of("topology: parallel") == "a; b; c; d;");
  CHECK(edges_of("topology: star, center: b") == "a; c; d; b: a c d;");
  CHECK(edges_of("topology: star, center: a, agents: [c, b]") == "c; b; a: c b;");
  CHECK(edges_of("topology: layered, layers: [[a, b], [c], [d]]") == "a; b; c: a b; d: c;");
  CHECK(edges_of("topology: layered, layers: [[a], [b, c], [d]]") == "a; b: a; c: a; d: b c;");
  CHECK(edges_of("topology: fully_connected") == "a; b: a; c: a b; d: a b c;");
  CHECK(edges_of("topology: debate") == "a; b; c; d;");
}

TEST_CASE("a graph has the edges that its steps declare, in an order that respects them") {
  CHECK(edges_of("topology: graph, steps: [{agent: d, needs: [b, c]}, {agent: b, needs: [a]}, {agent: c, needs: [a]}, "
                 "{agent: a}]") == "a; b: a; c: a; d: b c;");
  CHECK(edges_of("topology: graph, steps: [{id: draft, agent: a}, {id: review, agent: b, needs: [draft]}, {id: final, "
                 "agent: a, needs: [review]}]") == "draft; review: draft; final: review;");
}

TEST_CASE("a step without needs waits for what its prompt names") {
  const std::string agents = R"(
agents:
  a: {prompt: hello}
  b: {prompt: "{{ agent_a_current }}"}
  c: {prompt: "{{ condition_c_current }}", tools: [{python: {from: agent_b_current}}]}
  d: {prompt: hello}
)";
  CHECK(edges(plan(with_header(agents + "workflow: {topology: graph, steps: [{agent: c}, {agent: b}, {agent: a}, "
                                        "{agent: d, when: {agent: a, matches: x}}]}"))) == "a; b: a; c: b; d: a;");
}

TEST_CASE("a round begins when the one before is over") {
  CHECK(edges_of("topology: chain, agents: [a, b], rounds: 2") == "a; b: a; a#2: b; b#2: a#2;");
  CHECK(edges_of("topology: parallel, agents: [a, b], rounds: 2") == "a; b; a#2: a b; b#2: a b;");
  CHECK(edges_of("topology: star, agents: [a, b], center: c, rounds: 2") ==
        "a; b; c: a b; a#2: c; b#2: c; c#2: a#2 b#2;");
  CHECK(edges_of("topology: fully_connected, agents: [a, b], rounds: 3") ==
        "a; b: a; a#2: b; b#2: a#2; a#3: b#2; b#3: a#3;");
  CHECK(edges_of("topology: debate, agents: [a, b, c], rounds: 2") == "a; b; c; a#2: a b c; b#2: a b c; c#2: a b c;");
}

TEST_CASE("the decision agent needs everyone's last turn") {
  CHECK(edges_of("topology: parallel, then: c", "abc") == "a; b; c: a b;");
  CHECK(edges_of("topology: debate, rounds: 2, then: c", "abc") == "a; b; a#2: a b; b#2: a b; c: a#2 b#2;");
  const Plan made =
      plan(with_header("agents: {a: {prompt: hello}, b: {prompt: \"{{ agent_a_current }} {{ agent_a_history_1 }}\"}}\n"
                       "workflow: {then: b, rounds: 2}"));
  CHECK(edges(made) == "a; a#2: a; b: a a#2;");
  CHECK(made.turns[2].decides);
  CHECK(made.turns[2].round == 2);
  CHECK_FALSE(made.turns[1].decides);
  CHECK(made.rounds == 2);
  CHECK(made.last_turn_of("a", 1) == 0);
  CHECK(made.last_turn_of("a", 2) == 1);
  CHECK(made.last_turn_of("b", 2) == 2);
  CHECK(made.last_turn_of("b", 1) == -1);
}

TEST_CASE("needs are smaller than the step's own index, whatever the graph") {
  std::string agents = "agents:\n", turns;
  for (int i = 0; i < 40; ++i) {
    agents += "  a" + std::to_string(i) + ": {prompt: hello}\n";
    std::string needs;
    for (int j = i + 1; j < 40; j += 1 + (i * 7 + j) % 5)
      needs += (needs.empty() ? "" : ", ") + ("a" + std::to_string(j));
    turns += "    - {agent: a" + std::to_string(i) + ", needs: [" + needs + "]}\n";
  }
  const Plan made = plan(with_header(agents + "workflow:\n  topology: graph\n  rounds: 3\n  steps:\n" + turns));
  CHECK(made.turns.size() == 120);
  for (int i = 0; i < 120; ++i) {
    for (const int need : made.turns[static_cast<std::size_t>(i)].needs) CHECK(need < i);
  }
}

}  // namespace
}  // namespace baton::test::topology_test
