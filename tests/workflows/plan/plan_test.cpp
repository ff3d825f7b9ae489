// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "tests/support/workflow_files.h"
#include "workflows/format/placeholder.h"

namespace baton::test::plan_test {
namespace {

/// The slots of a turn as "name=kind:turn".
std::string slots(const Plan& plan, int index) {
  static constexpr const char* kKinds[] = {"input", "output", "answer", "tool", "empty"};
  std::string out;
  for (const SlotSource& slot : plan.turns[static_cast<std::size_t>(index)].slots) {
    out += (out.empty() ? "" : " ") + slot.name + "=" + kKinds[static_cast<int>(slot.kind)];
    if (slot.turn >= 0) out += ":" + plan.turns[static_cast<std::size_t>(slot.turn)].id;
  }
  return out;
}

/// A turn's prompt with its slots in brackets.
std::string prompt(const Plan& plan, int index) {
  std::string out;
  for (const PromptMessage& message : plan.turns[static_cast<std::size_t>(index)].messages) {
    out += message.role + "|";
    for (const PromptPiece& piece : message.pieces) out += piece.slot.empty() ? piece.text : "[" + piece.slot + "]";
    out += "|";
  }
  return out;
}

TEST_CASE("placeholder names are read from their ends") {
  const auto shown = [](std::string_view name) {
    const auto found = parse_placeholder(name);
    if (!found) return std::string("-");
    CHECK(placeholder_name(*found) == name);
    if (found->kind == Placeholder::Kind::answer) {
      std::string text = "answer " + found->id;
      for (const std::string& member : found->path) text += " " + member;
      return text;
    }
    return (found->kind == Placeholder::Kind::agent ? "agent " : "condition ") + found->id + " " +
           std::to_string(found->history);
  };
  CHECK(shown("agent_a_current") == "agent a 0");
  CHECK(shown("agent_a_history_12") == "agent a 12");
  CHECK(shown("condition_a_current") == "condition a 0");
  CHECK(shown("agent_a_current_current") == "agent a_current 0");
  CHECK(shown("agent_a_history_1_current") == "agent a_history_1 0");
  CHECK(shown("agent_a_history_1_history_2") == "agent a_history_1 2");
  CHECK(shown("agent__current") == "-");
  CHECK(shown("agent_a_answer") == "answer a");
  CHECK(shown("agent_answer_answer") == "answer answer");
  CHECK(shown("agent_a_answer.tags.0") == "answer a tags 0");
  CHECK(shown("agent_a_answer_current") == "agent a_answer 0");
  for (const char* bad : {"agent_current", "agent_a", "agent_a_history_", "agent_a_history_0", "agent_a_history_01",
                          "agent_a_history_1001", "agent_answer", "agent_a_current.x", "condition_a_answer",
                          "agent_a_history_99999999999", "agent_a_history_-1", "other_a_current", ""}) {
    CHECK(shown(bad) == "-");
  }
}

TEST_CASE("slots know where their values come from") {
  const Plan made = plan(with_header(R"(
inputs: {q: string, hint: {default: none}}
agents:
  a: {prompt: "{{ q }} {{ agent_b_history_1 }} {{ agent_b_history_2 }} {{ q }}"}
  b:
    prompt: "{{ agent_a_current }} {{ condition_b_current }} {{ agent_a_history_1 }} {{ condition_b_history_1 }} {{ hint }}"
    tools: [{python: {from: agent_a_current, seconds: 5}}]
  judge: {prompt: "{{ agent_a_current }} {{ condition_b_current }} {{ agent_b_history_1 }}"}
workflow: {topology: chain, agents: [a, b], rounds: 3, then: judge}
)"));
  REQUIRE(made.turns.size() == 7);
  CHECK(slots(made, 0) == "q=input agent_b_history_1=empty agent_b_history_2=empty");
  CHECK(slots(made, 1) ==
        "agent_a_current=output:a condition_b_current=tool:b agent_a_history_1=empty condition_b_history_1=empty "
        "hint=input");
  CHECK(slots(made, 2) == "q=input agent_b_history_1=output:b agent_b_history_2=empty");
  CHECK(slots(made, 3) ==
        "agent_a_current=output:a#2 condition_b_current=tool:b#2 agent_a_history_1=output:a "
        "condition_b_history_1=tool:b hint=input");
  CHECK(slots(made, 4) == "q=input agent_b_history_1=output:b#2 agent_b_history_2=output:b");
  CHECK(slots(made, 6) == "agent_a_current=output:a#3 condition_b_current=tool:b#3 agent_b_history_1=output:b#2");
  CHECK(made.turns[4].needs == std::vector<int>{1, 3});
  CHECK(made.turns[1].tools.at(0).from == "agent_a_current");
  CHECK(made.turns[1].tools.at(0).options.at("seconds") == "5");
  CHECK(made.turns[0].slot("q")->method->name == "full");
  CHECK(made.turns[0].slot("q")->reason == "the first of its run: there is no step to compute it in");
  CHECK(made.turns[0].slot("agent_b_history_1")->reason == "before the first round");
  CHECK(made.turns[0].slot("nothing") == nullptr);
}

TEST_CASE("what only a tool reads is a slot too") {
  const Plan made =
      plan(with_header("agents:\n  a: {prompt: hello}\n"
                       "  b: {prompt: \"{{ condition_b_current }}\", tools: [{python: {from: agent_a_current}}]}\n"
                       "workflow: {topology: chain}"));
  CHECK(slots(made, 1) == "condition_b_current=tool:b agent_a_current=output:a");
}

TEST_CASE("loops are written out over what an agent sees") {
  const Plan made = plan(with_header(R"(
agents:
  a: &member
    role: First
    prompt:
      user:
        - "Q: {{ user_question }}"
        - {for: peers, text: " {{ it.name }} ({{ it.role }}): {{ it.output }}"}
        - {for: previous, text: " before, {{ it.name }}: {{ it.output }}"}
        - " End."
  b: {<<: *member, role: Second}
workflow: {topology: fully_connected, rounds: 2}
)"));
  CHECK(prompt(made, 0) == "user|Q: [user_question] End.|");
  CHECK(prompt(made, 1) == "user|Q: [user_question] a (First): [agent_a_current] End.|");
  CHECK(prompt(made, 2) ==
        "user|Q: [user_question] before, a: [agent_a_history_1] before, b: [agent_b_history_1] End.|");
  CHECK(prompt(made, 3) ==
        "user|Q: [user_question] a (First): [agent_a_current] before, a: [agent_a_history_1] before, b: "
        "[agent_b_history_1] End.|");
  CHECK(slots(made, 3) ==
        "user_question=input agent_a_current=output:a#2 agent_a_history_1=output:a agent_b_history_1=output:b");
  CHECK(made.turns[0].messages[0].pieces.size() == 3);  // neighbouring text is one piece
}

TEST_CASE("a debate sees the last round, a decision everyone's last words") {
  const Plan made = plan(with_header(R"(
agents:
  a: &member {prompt: {user: [{for: previous, text: "{{ it.output }},"}]}}
  b: *member
  judge: {prompt: {user: {for: peers, text: "{{ it.output }};"}}}
workflow: {topology: debate, rounds: 2, then: judge}
)"));
  CHECK(prompt(made, 0) == "user||");
  CHECK(prompt(made, 3) == "user|[agent_a_history_1],[agent_b_history_1],|");
  CHECK(prompt(made, 4) == "user|[agent_a_current];[agent_b_current];|");
  CHECK(slots(made, 4) == "agent_a_current=output:a#2 agent_b_current=output:b#2");
}

TEST_CASE("an agent with several turns sees its own earlier ones, and others see the last before them") {
  const Plan made = plan(with_header(R"(
agents:
  writer: {prompt: "{{ user_question }}"}
  reviser: {prompt: "{{ agent_writer_current }} {{ agent_critic_current }}"}
  critic: {prompt: "{{ agent_writer_current }}"}
workflow:
  topology: graph
  steps:
    - {id: first, agent: writer}
    - {id: second, agent: writer, needs: [first]}
    - {id: early, agent: critic, needs: [first]}
    - {id: late, agent: reviser, needs: [second, early], when: {agent: critic, not_matches: fine}, on_error: skip, retry: 3}
)"));
  CHECK(slots(made, 2) == "agent_writer_current=output:first");
  CHECK(slots(made, 3) == "agent_writer_current=output:second agent_critic_current=output:early");
  REQUIRE(made.turns[3].when);
  CHECK(made.turns[3].when->negate);
  CHECK(made.turns[3].on_error == OnError::skip);
  CHECK(made.turns[3].retry.attempts == 3);
}

TEST_CASE("settings of an agent win over the defaults") {
  const Plan made = plan(R"(
version: 1
models: {small: {path: nano, activations: bf16}, large: {path: big, dtype: f32, context: 512}}
defaults: {model: small, max_tokens: 64, temperature: 0.5, top_k: 40, stop: "\n\n", timeout: 60s, seed: 7}
agents:
  a: {prompt: hello, model: large, max_tokens: 0x10, stop: [x, y], on_error: fallback, fallback: none, retry: {attempts: 2, backoff: 50ms}}
  b:
    prompt: hello
    top_p: 0.9
    min_p: 0.1
    repetition_penalty: 1.1
    timeout: 1m
    output: {pattern: x}
    retry: {attempts: 2, feedback: "No: {{ error }}."}
workflow: {topology: parallel, max_parallel: 1}
relay: full
)");
  const PlannedTurn &a = made.turns[0], &b = made.turns[1];
  CHECK(a.model == "large");
  CHECK(a.max_tokens == 16);
  CHECK(a.stop == std::vector<std::string>{"x", "y"});
  CHECK(a.timeout == Milliseconds(60'000));
  CHECK(a.on_error == OnError::fallback);
  CHECK(a.fallback == "none");
  CHECK(a.retry.attempts == 2);
  CHECK(a.retry.backoff == Milliseconds(50));
  CHECK(a.sampling.seed == 7);
  CHECK(a.retry.feedback.empty());
  REQUIRE(b.retry.feedback.size() == 3);
  CHECK(b.retry.feedback[0].text == "No: ");
  CHECK(b.retry.feedback[1].placeholder == "error");
  CHECK(b.retry.feedback[2].text == ".");
  CHECK(b.model == "small");
  CHECK(b.max_tokens == 64);
  CHECK(b.stop == std::vector<std::string>{"\n\n"});
  CHECK(b.sampling.temperature == 0.5f);
  CHECK(b.sampling.top_k == 40);
  CHECK(b.sampling.top_p == 0.9f);
  CHECK(b.sampling.min_p == 0.1f);
  CHECK(b.sampling.repetition_penalty == 1.1f);
  CHECK(made.relay == "full");
  CHECK(made.spec->models[1].dtype == DType::f32);
  CHECK(made.spec->models[1].kv_dtype == DType::f32);
  CHECK(made.spec->models[0].activations == DType::bf16);
  CHECK(made.spec->models[1].activations == DType::f32);
  CHECK(made.spec->models[1].context == 512);
}

TEST_CASE("a reader recomputes the layers that its own authors' models need") {
  Plan team = plan(R"(
version: 1
models: {a: {path: one}, b: {path: two}, c: {path: three}}
relay: {method: droidspeak, ttft: 300ms}
agents:
  first: {model: a, prompt: "{{ user_question }}"}
  second: {model: b, prompt: "{{ agent_first_current }}"}
  third: {model: c, prompt: "{{ agent_first_current }} {{ agent_second_current }}"}
workflow: {topology: chain}
)");
  CHECK(wanted_ttft_ms(team.reuse) == 300);
  team.reuse.range = LayerRange::group(2, 9);
  team.larger_ends = {{{"a", "b"}, {5, 9, 11}}, {{"a", "c"}, {3, 7, 9, 11}}, {{"b", "c"}, {7, 11}}};
  const auto group = [&](const char* agent) {
    return team.reuse_of(team.turns[static_cast<std::size_t>(team.last_turn_of(agent, 1))]);
  };
  CHECK(group("first").range == LayerRange::group(2, 9));  // reads nobody
  CHECK(group("second").range == LayerRange::group(2, 5));
  CHECK(group("second").larger_ends == std::vector<std::int32_t>{9, 11});
  CHECK(group("third").range == LayerRange::group(2, 7));
  CHECK(group("third").larger_ends == std::vector<std::int32_t>{11});
  team.larger_ends.clear();
  CHECK(group("third").range == LayerRange::group(2, 9));
  CHECK(group("third").larger_ends.empty());
}

TEST_CASE("a time limit holds for turns of tools, and for those that ask only their own") {
  const Plan made = plan(with_header(R"(
defaults: {timeout: 60s}
agents:
  tool: {tools: [python]}
  quick: {tools: [python], timeout: 2s}
  free: {tools: [python], timeout: none}
  person: {ask: "Go on?"}
  hurried: {ask: "Go on?", timeout: 5m}
workflow: {topology: parallel}
)"));
  REQUIRE(made.turns.size() == 5);
  CHECK(made.turns[0].timeout == Milliseconds(60'000));
  CHECK(made.turns[1].timeout == Milliseconds(2000));
  CHECK(made.turns[2].timeout == Milliseconds(0));
  CHECK(made.turns[3].timeout == Milliseconds(0));
  CHECK(made.turns[4].timeout == Milliseconds(300'000));
}

TEST_CASE("without outputs the answer is the last agent's") {
  const auto answer = [](const std::string& workflow) {
    const WorkflowSpec spec = parse(with_header("agents: {a: {prompt: hello}, b: {prompt: hello}}\n" + workflow));
    REQUIRE(spec.outputs.size() == 1);
    return spec.outputs[0].first + "=" + spec.outputs[0].second.at(0).placeholder;
  };
  CHECK(answer("workflow: {topology: chain}") == "answer=agent_b_current");
  CHECK(answer("workflow: {then: a}") == "answer=agent_a_current");
  CHECK(answer("workflow: {topology: star, center: a}") == "answer=agent_a_current");
  CHECK(answer("workflow: {topology: chain}\noutputs: {text: \"{{ agent_a_current }}\"}") == "text=agent_a_current");
}

TEST_CASE("a spec made by a program is checked too") {
  const auto errors_of_spec = [](WorkflowSpec spec) {
    try {
      compile(std::move(spec));
      return std::string();
    } catch (const WorkflowError& error) {
      return std::string(error.what());
    }
  };
  WorkflowSpec spec;
  spec.models.emplace_back().name = "main";
  AgentSpec& agent = spec.agents.emplace_back();
  agent.id = "a";
  PromptItem item;
  item.pieces = {{"", "user_question", 0}};
  item.piece_where = {{"program", 0, 0, 1}};
  agent.messages.push_back({"user", {item}, {}});
  spec.topology.agents = {"a"};
  CHECK(errors_of_spec(spec) == "program: error[E0203]: agent 'a': unknown placeholder 'user_question'");
  spec.inputs.emplace_back().name = "user_question";
  CHECK(errors_of_spec(spec).empty());
  spec.topology.then = "b";
  CHECK(errors_of_spec(spec).find("error[E0201]: unknown agent 'b'") != std::string::npos);
  spec.topology.then = "";
  spec.models.clear();
  CHECK(errors_of_spec(spec).find("error[E0402]") != std::string::npos);
}

TEST_CASE("plans have a size") {
  std::string agents = "agents:\n";
  for (int i = 0; i < 257; ++i) agents += "  a" + std::to_string(i) + ": {prompt: hello}\n";
  CHECK(errors_of(with_header(agents + "workflow: {topology: parallel}"))
            .find("error[E0308]: expected at most 256 turns in a round, found 257") != std::string::npos);
  const std::string text(300'000, 'x');
  CHECK(errors_of(with_header("agents: {a: {prompt: " + text + "}}\nworkflow: {rounds: 1000}"))
            .find("error[E0308]: the prompts of all turns") != std::string::npos);
}

TEST_CASE("an agent without a prompt has no model, and its output is a tool's result") {
  const Plan made = plan(R"(
version: 1
models: {small: {path: nano}, large: {path: big}}
agents:
  a: {prompt: "{{ user_question }}", model: large}
  b: {tools: [{python: {from: agent_a_current, seconds: "{{ user_question }}"}}], output: {regex: "x+"}}
  c: {prompt: "{{ agent_b_current }} {{ agent_a_current }} {{ agent_b_answer }}", model: large}
relay: rectify
workflow: {topology: chain, rounds: 2, until: "'done' in agent_b_current"}
)");
  const PlannedTurn &b = made.turns[1], &c = made.turns[2];
  CHECK(b.model.empty());
  CHECK(b.messages.empty());
  REQUIRE(b.slots.size() == 2);
  CHECK(b.slots[0].reason == "read by its tools");
  CHECK(c.slot("agent_b_current")->kind == SlotSource::Kind::tool_result);
  CHECK(c.slot("agent_b_current")->turn == 1);
  CHECK(c.slot("agent_b_current")->reason == "computed here first");
  CHECK(c.slot("agent_b_answer")->reason == "computed here first");
  CHECK_FALSE(b.enforce);
  CHECK(c.slot("agent_a_current")->kind == SlotSource::Kind::agent_output);
}

TEST_CASE("a plan has whoever writes summaries of results that do not fit") {
  const std::string team =
      "version: 1\n"
      "models: {main: nano, small: {path: nano, template: {style: terse}}}\n"
      "inputs: {user_question: string, tone: string}\n"
      "defaults: {model: main, temperature: 0.7, max_tokens: 99}\n"
      "agents:\n"
      "  worker: {prompt: \"{{ user_question }}\", tools: [{call: python}], overflow: OVERFLOW}\n"
      "  brief: {model: small, temperature: 0.2, prompt: {system: [\"Be {{ tone }}.\"], user: \"unused\"}}\n"
      "workflow: {topology: chain, agents: [worker], rounds: 2}\n";
  const auto planned = [&](const std::string& overflow) {
    std::string yaml = team;
    yaml.replace(yaml.find("OVERFLOW"), 8, overflow);
    return plan(yaml);
  };
  for (const char* own : {"summarise", "{policy: summarise}", "drop_oldest", "{policy: cut_result}"}) {
    INFO(own);
    CHECK(planned(own).turns[0].summary == nullptr);
  }
  const Plan by_model = planned("{policy: summarise, model: small}");
  REQUIRE(by_model.turns.size() == 2);
  REQUIRE(by_model.turns[0].summary != nullptr);
  CHECK(by_model.turns[0].summary == by_model.turns[1].summary);
  CHECK(by_model.turns[0].overflow == Overflow::summarise);
  CHECK(by_model.turns[0].summary->agent.empty());
  CHECK(by_model.turns[0].summary->model == "small");
  CHECK(by_model.turns[0].summary->template_variables.size() == 1);
  CHECK(by_model.turns[0].summary->max_tokens == kSummaryTokens);
  CHECK(by_model.turns[0].summary->sampling.temperature == 0.0f);
  CHECK(by_model.turns[0].summary->messages.empty());

  const Plan by_agent = planned("{policy: summarise, agent: brief}");
  const PlannedTurn& writer = *by_agent.turns[0].summary;
  CHECK(writer.agent == "brief");
  CHECK(writer.model == "small");
  CHECK(writer.sampling.temperature == 0.2f);
  CHECK(writer.max_tokens == kSummaryTokens);
  CHECK(writer.think.enabled == false);
  REQUIRE(writer.messages.size() == 1);
  CHECK(writer.messages[0].role == "system");
  REQUIRE(writer.messages[0].pieces.size() == 3);
  CHECK(writer.messages[0].pieces[1].slot == "tone");
}

}  // namespace
}  // namespace baton::test::plan_test
