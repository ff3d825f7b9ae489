// SPDX-License-Identifier: Apache-2.0
// Answers as values and the expressions of conditions, in runs of whole workflow files.
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "tests/support/thread_time.h"
#include "tests/support/workflow_files.h"
#include "workflows/format/placeholder.h"
#include "workflows/run/executor.h"

namespace baton::test::answers_test {
namespace {

/// A run whose tool "python" repeats its text in brackets.
RunRecord run(const std::string& yaml, std::shared_ptr<ScriptedEngine> engine) {
  auto tools = std::make_shared<ToolRegistry>();
  tools->add(std::make_shared<FunctionTool>("python", [](const ToolCall& call) {
    return ToolResult{true, "[" + call.text + "]"};
  }));
  RunRequest request;
  request.plan = std::make_shared<const Plan>(plan(with_header(yaml)));
  request.engines = {{"main", std::move(engine)}};
  request.inputs = {{"question", "why?"}, {"least", "3"}};
  request.tools = std::move(tools);
  return run_plan(request);
}

TurnState state_of(const RunRecord& record, const std::string& agent, int round = 1) {
  for (const AgentRecord& found : record.agents) {
    if (found.agent == agent && found.round == round) return found.state;
  }
  throw std::invalid_argument(agent);
}

bool shown(const ScriptedEngine& engine, const std::string& text) {
  return std::any_of(engine.prompts.begin(), engine.prompts.end(),
                     [&](const std::string& prompt) { return prompt.find(text) != std::string::npos; });
}

/// Each agent says the id of its turn's prompt.
std::shared_ptr<ScriptedEngine> saying_numbers() {
  auto count = std::make_shared<int>(0);
  return std::make_shared<ScriptedEngine>(
      [count](const std::string&) { return Scripted{.text = "said" + std::to_string(++*count)}; });
}

TEST_CASE("the steps of one agent have placeholders of their own, in prompts, conditions, loops and outputs") {
  const std::string head = R"(
inputs: {question: string, least: string}
agents:
  w: {prompt: "work {{ question }}"}
)";
  const std::string steps =
      "workflow: {topology: graph, max_parallel: 1, steps: [{id: first, agent: w}, "
      "{id: second, agent: w}, {agent: join, needs: [first, second]}]}\n";
  {
    const auto engine = saying_numbers();
    const RunRecord record =
        run(head + "  join: {prompt: \"<{{ step_first_current }}><{{ step_second_current }}>\"}\n" + steps +
                "outputs: {one: \"{{ step_first_current }}\", two: \"{{ agent_w_current }}\"}\n",
            engine);
    CHECK(record.state == RunState::ok);
    CHECK(shown(*engine, "<said1><said2>"));
    CHECK(record.outputs.at("one") == "said1");
    CHECK(record.outputs.at("two") == "said2");
    CHECK(record.warnings.empty());
  }
  {
    const auto engine = saying_numbers();
    const RunRecord record =
        run(head + "  join: {prompt: {user: [{for: peers, text: \"<{{ it.name }}: {{ it.output }}>\"}]}}\n" + steps,
            engine);
    CHECK(shown(*engine, "<w: said1><w: said2>"));
    CHECK(record.warnings.empty());
  }
  {
    const RunRecord record = run(head + "  join: {prompt: \"<{{ agent_w_current }}>\"}\n" + steps, saying_numbers());
    REQUIRE(record.warnings.size() == 1);
    CHECK(record.warnings[0].code == WarningCode::output_unread);
    CHECK(record.warnings[0].turn == "first");
    CHECK_THAT(record.warnings[0].message, Catch::Contains("'step_first_current'"));
  }
  {  // the second step sees the first: nothing is hidden
    const std::string behind =
        "workflow: {topology: graph, steps: [{id: first, agent: w}, "
        "{id: second, agent: w, needs: [first]}, {agent: join, needs: [second], "
        "when: {holds: \"step_first_current == 'said1'\"}}]}\n";
    const auto engine = saying_numbers();
    const RunRecord record =
        run(head + "  join: {prompt: {user: [{for: peers, text: \"<{{ it.name }}: {{ it.output }}>\"}]}}\n" + behind,
            engine);
    CHECK(state_of(record, "join") == TurnState::ok);
    CHECK(shown(*engine, "<w: said2>"));
    CHECK_FALSE(shown(*engine, "said1"));
    CHECK(record.warnings.empty());
  }
  {  // rounds, and the agent that decides
    const auto engine = saying_numbers();
    const RunRecord record =
        run(head + "  join: {prompt: \"{{ step_first_history_1 }}|{{ step_second_history_1 }}\"}\n" +
                "  judge: {prompt: \"({{ step_first_current }})({{ step_second_current }})\"}\n" +
                "workflow: {topology: graph, max_parallel: 1, rounds: 2, then: judge, steps: [{id: first, agent: w}, "
                "{id: second, agent: w}, {agent: join, needs: [first, second]}]}\n",
            engine);
    CHECK(record.state == RunState::ok);
    CHECK(shown(*engine, "said1|said2"));
    CHECK(shown(*engine, "(said4)(said5)"));
  }
}

TEST_CASE("a step's placeholder is refused where the step has no output") {
  const std::string agents = "agents:\n  w: {prompt: hi}\n  join: {prompt: \"{{ step_first_current }}\"}\n";
  const auto errors = [&](const std::string& steps) {
    return errors_of(with_header(agents + "workflow: {topology: graph, steps: [" + steps + "]}\n"));
  };
  CHECK(errors("{id: first, agent: w}, {agent: join}") == "");
  CHECK_THAT(errors("{id: other, agent: w}, {agent: join}"),
             Catch::Contains("unknown placeholder 'step_first_current'"));
  CHECK_THAT(errors("{id: first, agent: w}, {id: second, agent: w}, {agent: join, needs: [second]}"),
             Catch::Contains("E0304"));
  CHECK_THAT(errors_of(with_header(agents + "workflow: {topology: chain}\n")), Catch::Contains("unknown placeholder"));
}

TEST_CASE("numbers of answers stay as they were written") {
  const auto names = [](const std::vector<std::string>& texts) {
    std::map<std::string, Placeholder> found;
    for (const std::string& text : texts) found.emplace(text, *parse_placeholder("agent_a_answer" + text));
    return found;
  };
  const std::string answer =
      "\n{ \"price\": 82.50, \"list\" : [ 1.0, {\"b\": 2e3, \"a\": \"x, ]\\\" }\"} , -0.10 ],\n"
      "\"na\\u006de\": 7.00, \"price\": 82.500, \"text\": \"1.50\", \"none\": null }\n";
  const auto texts = answer_texts(answer, names({".price", ".list", ".list.0", ".list.1", ".list.1.b", ".list.2",
                                                 ".list.3", ".name", ".text", ".none", ".price.x", ""}));
  CHECK(texts == std::map<std::string, std::string>{{".price", "82.500"},  // of equal keys the last one counts
                                                    {".list", R"([1.0,{"b":2e3,"a":"x, ]\" }"},-0.10])"},
                                                    {".list.0", "1.0"},
                                                    {".list.1", R"({"b":2e3,"a":"x, ]\" }"})"},
                                                    {".list.1.b", "2e3"},
                                                    {".list.2", "-0.10"},
                                                    {".name", "7.00"},
                                                    {".text", "1.50"},
                                                    {".none", "null"},
                                                    {"", answer}});
  CHECK(answer_texts("12.50", names({".x", ""})) == std::map<std::string, std::string>{{"", "12.50"}});
  CHECK(answer_texts("{\"x\": 1.50", names({".x"})).empty());
}

TEST_CASE("answers are values: in prompts, conditions, tools and outputs") {
  const std::string yaml = R"(
inputs: {question: string, least: {default: "3"}}
agents:
  author: {prompt: "role:author|"}
  judge:
    prompt: "role:judge|{{ agent_author_current }}"
    output: {schema: {properties: {score: {type: integer}, notes: {items: {type: string}}}}, enforce: false}
  fixer: {prompt: "role:fixer|[{{ agent_judge_answer.notes.0 }}|{{ agent_judge_answer.notes }}|{{ agent_judge_answer.score }}|{{ agent_judge_answer.notes.7 }}]"}
  praiser:
    tools: [{python: {from: agent_judge_answer.score}}]
    prompt: "role:praiser|{{ agent_judge_answer }} {{ condition_praiser_current }}"
workflow:
  topology: graph
  rounds: 3
  until: agent_judge_answer.score >= least | int and round > 1
  steps:
    - {agent: author}
    - {agent: judge}
    - {agent: fixer, when: agent_judge_answer.score < 3}
    - {agent: praiser, needs: [judge], when: "not agent_judge_answer.score < 3 and 'good' in agent_author_current"}
outputs: {score: "{{ agent_judge_answer.score }}", all: "{{ agent_judge_answer }}", none: "{{ agent_judge_answer.notes.9 }}"}
)";
  const auto scripted = [](std::vector<int> scores) {
    return std::make_shared<ScriptedEngine>([scores, round = std::size_t{0}](const std::string& prompt) mutable {
      if (agent_of(prompt) != "judge") return Scripted{.text = "good"};
      return Scripted{.text =
                          "{\"score\": " + std::to_string(scores[round++]) + ", \"notes\": [\"a \\\"b\\\"\", \"c\"]}"};
    });
  };
  const auto engine = scripted({1, 4, 5});
  const RunRecord record = run(yaml, engine);
  CHECK(record.state == RunState::ok);
  CHECK(state_of(record, "fixer") == TurnState::ok);
  CHECK(state_of(record, "praiser") == TurnState::skipped);
  CHECK(state_of(record, "fixer", 2) == TurnState::skipped);
  CHECK(state_of(record, "praiser", 2) == TurnState::ok);
  CHECK(state_of(record, "author", 3) == TurnState::skipped);  // the rounds ended
  CHECK(shown(*engine, "[a \"b\"|[\"a \\\"b\\\"\",\"c\"]|1|]"));
  CHECK(shown(*engine, "role:praiser|{\"score\": 4, \"notes\": [\"a \\\"b\\\"\", \"c\"]} [4]"));
  CHECK(record.outputs.at("score") == "4");
  CHECK(record.outputs.at("all").starts_with("{\"score\": 4"));
  CHECK(record.outputs.at("none") == "");

  CHECK(state_of(run(yaml, scripted({5, 1, 1})), "author", 3) == TurnState::ok);  // not after the first round
}

TEST_CASE("until sees outputs of earlier rounds, and answers that do not exist") {
  const auto rounds = [&](std::vector<std::string> texts, const std::string& verdict) {
    const auto engine =
        std::make_shared<ScriptedEngine>([texts, verdict, at = std::size_t{0}](const std::string& prompt) mutable {
          return Scripted{.text = agent_of(prompt) == "picky" ? verdict : texts[at++]};
        });
    const RunRecord record = run(R"(
agents:
  writer: {prompt: "role:writer|"}
  picky: {prompt: "role:picky|{{ agent_writer_current }}", output: {enum: [fine, bad], enforce: false, required: false}}
workflow: {topology: chain, rounds: 5, until: agent_writer_current == agent_writer_history_1 or agent_picky_answer == 'fine'}
)",
                                 engine);
    CHECK(record.state == RunState::ok);
    return engine->prompts.size() / 2;
  };
  CHECK(rounds({"a", "b", "b", "c", "d"}, "bad") == 3);
  CHECK(rounds({"a", "b", "c", "d", "e"}, "bad") == 5);
  CHECK(rounds({"a", "b", "c", "d", "e"}, "fine") == 1);
  CHECK(rounds({"a", "b", "c", "d", "e"}, "neither") == 5);  // a missing answer equals nothing
}

TEST_CASE("conditions see results of tools, the step's own only of earlier rounds") {
  const auto engine =
      std::make_shared<ScriptedEngine>([](const std::string& prompt) { return Scripted{.text = agent_of(prompt)}; });
  const RunRecord record = run(R"(
agents:
  coder: {tools: [{python: {from: user_question}}], prompt: "role:coder|{{ condition_coder_current }}"}
  again: {tools: [{python: {from: agent_coder_current}}], prompt: "role:again|{{ condition_again_current }}"}
  never: {prompt: "role:never|"}
workflow:
  topology: graph
  rounds: 2
  until: "'nothing' in condition_coder_current"
  steps:
    - {agent: coder}
    - {agent: again, needs: [coder], when: "round == 1 or condition_again_history_1 == '[coder]'"}
    - {agent: never, needs: [coder], when: "condition_coder_current != '[]'"}
)",
                               engine);
  CHECK(record.state == RunState::ok);
  CHECK(state_of(record, "again", 2) == TurnState::ok);
  CHECK(state_of(record, "never") == TurnState::skipped);
}

TEST_CASE("a condition whose values do not fit ends the run with its place") {
  const auto engine = std::make_shared<ScriptedEngine>([](const std::string&) { return Scripted{.text = "x"}; });
  const RunRecord record = run(R"(
agents:
  a: {prompt: "role:a|"}
  b: {prompt: "role:b|"}
workflow:
  topology: graph
  steps:
    - {agent: a}
    - {agent: b, when: agent_a_current > 3}
)",
                               engine);
  CHECK(record.state == RunState::failed);
  CHECK(record.error.find("the condition 'agent_a_current > 3', character 17: ") != std::string::npos);
}

TEST_CASE("members of an answer whose schema is invalid are not checked against it") {
  for (const char* schema : {"{$ref: '#/definitions/nope'}", "{$ref: 3}", "{properties: 3}", "{items: 3}", "x"}) {
    const std::string errors =
        errors_of(with_header("agents:\n  a: {prompt: hi, output: {schema: " + std::string(schema) +
                              "}}\n  b: {prompt: '{{ agent_a_answer.x.0 }}'}\n"
                              "workflow: {topology: chain, until: agent_a_answer.y > 1}\n"));
    INFO(schema << "\n" << errors);
    CHECK(errors.find("error[E0408]") != std::string::npos);
    CHECK(errors.find("error[E0209]") == std::string::npos);
  }
}

TEST_CASE("only a schema that is enforced excludes members that it does not name") {
  const auto errors = [](const std::string& more) {
    return errors_of(with_header("agents:\n  a: {prompt: hi, output: {schema: {properties: {n: {type: integer}}" +
                                 more +
                                 "}}\n  b: {prompt: '{{ agent_a_answer.other }}'}\nworkflow: {topology: chain}\n"));
  };
  CHECK(errors("}").find("error[E0209]") != std::string::npos);
  CHECK(errors("}, enforce: false") == "");
  CHECK(errors(", additionalProperties: true}") == "");
  CHECK(errors(", additionalProperties: false}, enforce: false").find("error[E0209]") != std::string::npos);
}

TEST_CASE("the schema of an answer is read once for all placeholders") {
  std::string properties, uses;
  for (int i = 0; i < 4000; ++i) properties += "p" + std::to_string(i) + ": true,";
  for (int i = 0; i < 900; ++i) uses += "{{ agent_a_answer.p" + std::to_string(i) + " }}";
  std::string yaml =
      "agents:\n  a: {prompt: hi, output: {enforce: false, schema: {properties: {" + properties + "}}}}\n";
  for (int i = 0; i < 10; ++i) yaml += "  b" + std::to_string(i) + ": {prompt: '" + uses + "'}\n";
  const double begin = thread_seconds();
  CHECK(errors_of(with_header(yaml + "workflow: {topology: chain}\n")) == "");
  CHECK(thread_seconds() - begin < 2.0 * slowdown());
}

TEST_CASE("probabilities of choices are values, and the record has them") {
  const std::string yaml = R"(
agents:
  judge:
    prompt: "role:judge|"
    output: {choose: ["1", "10", not sure]}
  sure: {prompt: "role:sure|{{ agent_judge_probabilities.10 }} {{ agent_judge_probabilities }} {{ agent_judge_answer }}"}
  unsure: {prompt: "role:unsure|"}
workflow:
  topology: graph
  rounds: 2
  until: agent_judge_probabilities['not sure'] > 0.9
  steps:
    - {agent: judge}
    - {agent: sure, when: "agent_judge_probabilities['10'] >= 0.75 and agent_judge_answer == '10'"}
    - {agent: unsure, needs: [judge], when: "agent_judge_probabilities['10'] < 0.75"}
outputs: {one: "{{ agent_judge_probabilities.1 }}"}
)";
  const std::vector<double> probabilities{0.000009, 0.751234567, 1.0 - 0.000009 - 0.751234567};
  const auto engine = std::make_shared<ScriptedEngine>([&](const std::string& prompt) {
    if (agent_of(prompt) != "judge") return Scripted{.text = "good"};
    return Scripted{.text = "10", .choices = probabilities};
  });
  const RunRecord record = run(yaml, engine);
  CHECK(record.state == RunState::ok);
  CHECK(state_of(record, "sure") == TurnState::ok);
  CHECK(state_of(record, "unsure") == TurnState::skipped);
  CHECK(state_of(record, "sure", 2) == TurnState::ok);
  CHECK(record.outputs.at("one") == "0.0");
  const AgentRecord& judge = record.agents.front();
  CHECK(judge.answer == "10");
  CHECK(judge.probabilities == std::vector<std::pair<std::string, double>>{
                                   {"1", probabilities[0]}, {"10", probabilities[1]}, {"not sure", probabilities[2]}});
  CHECK(record.to_json().find("\"probabilities\": {\n        \"1\": 9e-06,") != std::string::npos);
  CHECK(shown(*engine, "role:sure|0.7512 {\"1\":0.0,\"10\":0.7512,\"not sure\":0.2488} 10"));
  CHECK(engine->choices.front() ==
        std::vector<std::vector<TokenId>>{{'1'}, {'1', '0'}, {'n', 'o', 't', ' ', 's', 'u', 'r', 'e'}});
  CHECK(engine->constraints.front() == nullptr);
  CHECK(engine->choices.back().empty());
}

}  // namespace
}  // namespace baton::test::answers_test
