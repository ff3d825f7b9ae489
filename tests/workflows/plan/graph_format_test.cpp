// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>

#include "tests/support/workflow_files.h"

namespace baton::test::graph_format_test {
namespace {

Plan team() {
  return plan(with_header(R"(
name: team
agents:
  analyst: {role: 'The "Analyst"', prompt: "{{ user_question }}"}
  critic: {prompt: "{{ agent_analyst_current }}", tools: [{python: {from: agent_analyst_current}}]}
  quiet: {prompt: "{{ agent_analyst_current }}"}
  judge: {prompt: "{{ agent_critic_current }}"}
workflow: {topology: fully_connected, agents: [analyst, critic, quiet], then: judge, until: {agent: critic, not_matches: no}}
)"));
}

TEST_CASE("a plan for the terminal shows what is read and what is only awaited") {
  CHECK(format_graph(team(), "ascii") ==
        "team: fully_connected, 3 agents, 1 round, then judge, relay auto\n"
        "\n"
        "round 1\n"
        "  1  analyst\n"
        "  2  critic   <-- analyst\n"
        "       tool python on agent_analyst_current\n"
        "  3  quiet    <-- analyst  (and after critic)\n"
        "\n"
        "then\n"
        "  *  judge    <-- critic  (and after analyst, quiet)\n"
        "\n"
        "the rounds end once critic does not match /no/\n");
}

TEST_CASE("the end of a round of many turns is one node, whose edges grow with the turns and not with their square") {
  const auto many = [](int agents, const std::string& first) {
    std::string yaml = "agents:\n  a0: {prompt: " + first + "}\n";
    for (int i = 1; i < agents; ++i) yaml += "  a" + std::to_string(i) + ": {prompt: hello}\n";
    return plan(with_header(yaml + "workflow: {topology: parallel, rounds: 3}\n"));
  };
  const auto graph_of = [](const Plan& made) { return nlohmann::json::parse(format_graph(made, "json")); };
  for (const int agents : {9, 40}) {
    INFO(agents);
    const Plan made = many(agents, "hello");
    const nlohmann::json graph = graph_of(made);
    CHECK(graph["edges"].empty());
    REQUIRE(graph["barriers"].size() == 2);
    CHECK(graph["barriers"][1]["round"] == 2);
    CHECK(graph["barriers"][1]["from"].size() == static_cast<std::size_t>(agents));
    CHECK(graph["barriers"][1]["to"].size() == static_cast<std::size_t>(agents));
    CHECK(graph["barriers"][1]["to"][0] == "a0#3");
    CHECK_THAT(format_graph(made, "ascii"), Catch::Contains("a1#2") && Catch::Contains(" ... after all of round 1\n"));
    CHECK_THAT(format_graph(made, "mermaid"), Catch::Contains("  s0 -.-> b1\n") && Catch::Contains("  b2 -.-> s"));
    CHECK_THAT(format_graph(made, "dot"), Catch::Contains("  s0 -> b1 [style=dashed];\n"));
  }
  CHECK(graph_of(many(8, "hello"))["edges"].size() == 128);  // two rounds of 8 x 8
  CHECK_FALSE(graph_of(many(8, "hello")).contains("barriers"));
  const nlohmann::json reading = graph_of(many(9, "\"{{ agent_a4_history_1 }}\""));
  CHECK(reading["barriers"].size() == 2);
  REQUIRE(reading["edges"].size() == 2);  // what is read has an edge of its own
  CHECK(reading["edges"][0]["from"] == "a4");
  CHECK(reading["edges"][0]["to"] == "a0#2");
}

TEST_CASE("levels and rounds stand in blocks") {
  const Plan made = plan(with_header(R"(
name: pair
agents: {a: {prompt: hello}, b: {prompt: "{{ agent_a_history_1 }}"}}
workflow: {topology: parallel, rounds: 2}
)"));
  CHECK(format_graph(made, "ascii") ==
        "pair: parallel, 2 agents, 2 rounds, relay auto\n"
        "\n"
        "round 1\n"
        "  1  a\n"
        "     b\n"
        "\n"
        "round 2\n"
        "  1  a#2  ... after a, b\n"
        "     b#2  <-- a  (and after b)\n");
  CHECK(format_graph(made, "mermaid") ==
        "flowchart TD\n"
        "  subgraph round_1 [\"round 1\"]\n"
        "    s0[\"a\"]\n"
        "    s1[\"b\"]\n"
        "  end\n"
        "  subgraph round_2 [\"round 2\"]\n"
        "    s2[\"a#2\"]\n"
        "    s3[\"b#2\"]\n"
        "  end\n"
        "  s0 -.-> s2\n"
        "  s1 -.-> s2\n"
        "  s0 --> s3\n"
        "  s1 -.-> s3\n");
}

TEST_CASE("mermaid and dot") {
  CHECK(format_graph(team(), "mermaid") ==
        "flowchart TD\n"
        "  s0[\"analyst<br/>The #quot;Analyst#quot;\"]\n"
        "  s1[\"critic<br/>tool python on agent_analyst_current\"]\n"
        "  s2[\"quiet\"]\n"
        "  s3{{\"judge\"}}\n"
        "  s0 --> s1\n"
        "  s0 --> s2\n"
        "  s1 -.-> s2\n"
        "  s0 -.-> s3\n"
        "  s1 --> s3\n"
        "  s2 -.-> s3\n");
  CHECK(format_graph(team(), "dot").find("  s0 [label=\"analyst\\nThe \\\"Analyst\\\"\"];\n") != std::string::npos);
  CHECK(format_graph(team(), "dot").find("  s2 [label=\"quiet\"];\n") != std::string::npos);
  CHECK(format_graph(team(), "dot").find("  s1 -> s2 [style=dashed];\n") != std::string::npos);
}

TEST_CASE("mermaid and dot show rounds, conditions and tools, each once") {
  const Plan made = plan(with_header(R"(
name: loop
agents:
  coder: {prompt: "{{ user_question }} {{ agent_tests_history_1 }}"}
  tests: {tools: [{python: {from: agent_coder_current}}]}
workflow:
  topology: graph
  rounds: 3
  until: "round > 2 or 'fine <3' in agent_tests_current"
  steps: [{agent: coder}, {agent: tests, when: "agent_coder_current != 'a \"b\"'"}]
)"));
  CHECK(format_graph(made, "mermaid") ==
        "flowchart TD\n"
        "  subgraph round_1 [\"round 1\"]\n"
        "    s0[\"coder\"]\n"
        "    s1[\"tests<br/>tool python on agent_coder_current<br/>when agent_coder_current != 'a #quot;b#quot;'\"]\n"
        "  end\n"
        "  subgraph round_2 [\"round 2\"]\n"
        "    s2[\"coder#2\"]\n"
        "    s3[\"tests#2<br/>tool python on agent_coder_current<br/>when agent_coder_current != 'a #quot;b#quot;'\"]\n"
        "  end\n"
        "  subgraph round_3 [\"round 3\"]\n"
        "    s4[\"coder#3\"]\n"
        "    s5[\"tests#3<br/>tool python on agent_coder_current<br/>when agent_coder_current != 'a #quot;b#quot;'\"]\n"
        "  end\n"
        "  s0 --> s1\n"
        "  s1 --> s2\n"
        "  s2 --> s3\n"
        "  s3 --> s4\n"
        "  s4 --> s5\n"
        "  round_1 -.->|\"unless round #gt; 2 or 'fine #lt;3' in agent_tests_current\"| round_2\n"
        "  round_2 -.-> round_3\n");
  const std::string drawn = format_graph(made, "dot");
  for (const char* line :
       {"  s1 [label=\"tests\\ntool python on agent_coder_current\\nwhen agent_coder_current != 'a \\\"b\\\"'\"];\n",
        "  subgraph cluster_2 { label=\"round 2\"; s2; s3; }\n",
        "  s1 -> s2 [ltail=cluster_1, lhead=cluster_2, style=dotted, label=\"unless round > 2 or 'fine <3' in "
        "agent_tests_current\"];\n",
        "  s3 -> s4 [ltail=cluster_2, lhead=cluster_3, style=dotted];\n"}) {
    INFO(line);
    CHECK(drawn.find(line) != std::string::npos);
  }
}

TEST_CASE("json has every turn, slot and edge") {
  const auto graph = nlohmann::json::parse(format_graph(team(), "json"));
  CHECK(graph["schema"] == 1);
  CHECK(graph["topology"] == "fully_connected");
  CHECK(graph["turns"].size() == 4);
  CHECK(graph["turns"][1]["slots"][0]["turn"] == "analyst");
  CHECK(graph["turns"][3]["decides"] == true);
  CHECK(graph["edges"].size() == 6);
  CHECK(graph["edges"][0]["slots"][0] == "agent_analyst_current");
  CHECK_THROWS_AS(format_graph(team(), "png"), std::invalid_argument);
}

}  // namespace
}  // namespace baton::test::graph_format_test
