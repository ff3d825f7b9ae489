// SPDX-License-Identifier: Apache-2.0
// What the plan says of prompts that are computed ahead, and prompts whose order is free.
#include <catch2/catch.hpp>

#include "tests/support/workflow_files.h"

namespace baton::test::ahead_forecast_test {
namespace {

std::string prompt(const Plan& plan, int index) {
  std::string out;
  for (const PromptMessage& message : plan.turns[static_cast<std::size_t>(index)].messages) {
    for (const PromptPiece& piece : message.pieces) out += piece.slot.empty() ? piece.text : "[" + piece.slot + "]";
  }
  return out;
}

std::string why(const Plan& plan, int index, const std::string& slot) {
  const SlotSource& source = *plan.turns[static_cast<std::size_t>(index)].slot(slot);
  return std::string(source.method->name) + ": " + source.reason;
}

}  // namespace

TEST_CASE("a chain mirrors each answer, the first turn computes its own prompt") {
  const Plan made = plan(with_header(R"(
inputs: {q: string}
agents:
  a: {prompt: "{{ q }}"}
  b: {prompt: "{{ q }} {{ agent_a_current }}"}
  c: {prompt: "{{ q }} {{ agent_a_current }} {{ agent_b_current }}"}
workflow: {topology: fully_connected}
relay: lockstep
)"));
  CHECK(why(made, 0, "q") == "full: the first of its run: there is no step to compute it in");
  CHECK(why(made, 1, "q") == "lockstep: computed ahead while others decode");
  CHECK(why(made, 2, "agent_a_current") == "lockstep: mirrored while a decodes");
  CHECK(why(made, 2, "agent_b_current") == "lockstep: mirrored while b decodes");
  CHECK(made.reuse.method->name == "lockstep");
  CHECK(!made.reuse.record);
}

TEST_CASE("answers that come at the same time stand behind each other") {
  const Plan made = plan(with_header(R"(
agents:
  a: {prompt: "1"}
  b: {prompt: "2"}
  judge: {prompt: "{{ agent_a_current }} {{ agent_b_current }}"}
workflow: {topology: parallel, agents: [a, b], then: judge}
relay: exact
)"));
  CHECK(why(made, 2, "agent_a_current") == "lockstep: mirrored while a decodes");
  CHECK(why(made, 2, "agent_b_current") == "lockstep: computed ahead once a, which stands before it, has ended");
  CHECK(made.relay == "lockstep");
}

TEST_CASE("tools and conditions end what can be known ahead") {
  const Plan made = plan(with_header(R"(
inputs: {q: string}
agents:
  a: {prompt: "{{ q }}"}
  b:
    prompt: "{{ q }} {{ condition_b_current }} {{ agent_a_current }}"
    tools: [{python: {from: agent_a_current}}]
  c: {prompt: "{{ condition_b_current }} {{ agent_b_current }}"}
  d: {prompt: "{{ agent_c_current }}"}
workflow:
  topology: graph
  steps:
    - agent: a
    - agent: b
      needs: [a]
    - agent: c
      needs: [b]
    - agent: d
      needs: [c]
      when: {agent: c, matches: x}
relay: exact
)"));
  CHECK(why(made, 1, "q") == "lockstep: computed ahead while others decode");
  CHECK(why(made, 1, "condition_b_current") == "full: known only when its tools have run");
  CHECK(why(made, 1, "agent_a_current") ==
        "full: behind condition_b_current, which is known only when its tools have run");
  CHECK(why(made, 2, "condition_b_current") == "lockstep: computed ahead once the tools of b have run");
  CHECK(why(made, 2, "agent_b_current") == "lockstep: mirrored while b decodes");
  CHECK(why(made, 3, "agent_c_current") == "full: its turn has a condition, so nothing is computed ahead");
}

TEST_CASE("an answer of another model is known only when it has ended") {
  const Plan made = plan(R"(
version: 1
models: {main: nano, other: other}
agents:
  a: {prompt: "1", model: other}
  b: {prompt: "{{ agent_a_current }}", model: main}
workflow: {topology: chain}
)");
  CHECK(why(made, 1, "agent_a_current") == "lockstep: computed ahead once a, of another model, has ended");
}

TEST_CASE("a free order puts first what is known first") {
  const std::string file = R"(
inputs: {q: string}
agents:
  a: {prompt: "{{ q }}"}
  b: {prompt: "{{ agent_a_current }}"}
  c: {prompt: "{{ agent_b_current }}"}
  judge:
    prompt:
      user:
        - "Third: {{ agent_c_current }}\n"
        - "Rules.\n"
        - "First: {{ agent_a_current }}\n"
        - "Question: {{ q }}\n"
        - "Now decide."
      ORDER
workflow:
  topology: graph
  steps: [{agent: a}, {agent: b, needs: [a]}, {agent: c, needs: [b]}, {agent: judge, needs: [a, c]}]
relay: exact
)";
  const auto with = [&](const std::string& order) {
    std::string text = file;
    return plan(with_header(text.replace(text.find("ORDER"), 5, order)));
  };
  const Plan written = with("order: written");
  CHECK(prompt(written, 3) == "Third: [agent_c_current]\nRules.\nFirst: [agent_a_current]\nQuestion: [q]\nNow decide.");
  CHECK(written.turns[3].order.empty());
  CHECK(why(written, 3, "agent_a_current") == "lockstep: computed ahead once c, which stands before it, has ended");
  const Plan free = with("order: free");
  CHECK(prompt(free, 3) == "Question: [q]\nRules.\nFirst: [agent_a_current]\nThird: [agent_c_current]\nNow decide.");
  CHECK(free.turns[3].order ==
        "q, agent_a_current, agent_c_current; 2 of its answers are mirrored, 1 as written (agent_c_current, "
        "agent_a_current, q)");
  CHECK(why(free, 3, "agent_a_current") == "lockstep: mirrored while a decodes");
}

TEST_CASE("with a free order the turns of a loop change places, and siblings begin alike") {
  const Plan made = plan(with_header(R"(
inputs: {q: string}
agents:
  slow: {prompt: "{{ agent_quick_current }}"}
  quick: {prompt: "{{ q }}"}
  x: &reader
    prompt:
      user:
        - {for: peers, text: "{{ it.name }}: {{ it.output }}\n"}
        - "{{ q }}\n"
        - "You are {{ q }}."
      order: free
  y: *reader
workflow:
  topology: graph
  steps: [{agent: quick}, {agent: slow, needs: [quick]}, {agent: x, needs: [slow, quick]}, {agent: y, needs: [slow, quick]}]
relay: exact
)"));
  CHECK(prompt(made, 2) == prompt(made, 3));
  CHECK(prompt(made, 2).find("[q]") == 0);
  CHECK(prompt(made, 2).find("quick:") < prompt(made, 2).find("slow:"));
}

TEST_CASE("auto rectifies what others hold, and computes the rest ahead") {
  const Plan made = plan(with_header(R"(
inputs: {q: string}
agents:
  a: {prompt: "{{ q }}"}
  b: {prompt: "{{ q }} {{ agent_a_current }}"}
  judge: {prompt: "{{ q }} {{ agent_a_current }} {{ agent_b_current }}", exact: true}
workflow: {topology: chain, agents: [a, b, judge]}
)"));
  CHECK(made.relay == "auto");
  CHECK(made.reuse.record);
  CHECK(why(made, 0, "q") == "full: the first of its run: there is no step to compute it in");
  CHECK(why(made, 1, "q") == "rectify: computed by a; if exact: computed ahead while others decode");
  CHECK(why(made, 1, "agent_a_current") == "rectify: decoded by a; if exact: mirrored while a decodes");
  CHECK(why(made, 2, "q") == "lockstep: computed ahead while others decode");
  CHECK(why(made, 2, "agent_b_current") == "lockstep: mirrored while b decodes");
  CHECK(made.reuse_of(made.turns[1]).exactness == Exactness::as_method);
  CHECK(made.reuse_of(made.turns[2]).exactness == Exactness::exact_reader);
}

TEST_CASE("an answer that is the whole output is handed over like it, a part of one is a text") {
  const auto made = [&](const std::string& output, const std::string& relay) {
    return plan(with_header("agents:\n  a: {prompt: hi, output: " + output + R"(}
  b: {prompt: "{{ agent_a_answer }}"}
  c: {prompt: "{{ agent_a_answer }}"}
workflow: {topology: fully_connected}
relay: )" + relay));
  };
  CHECK(why(made("{enum: [yes, no]}", "rectify"), 1, "agent_a_answer") == "rectify: decoded by a");
  CHECK(why(made("{enum: [yes, no]}", "rectify"), 2, "agent_a_answer") == "rectify: decoded by a");
  CHECK(why(made("{pattern: x}", "rectify"), 1, "agent_a_answer") == "full: computed here first");
  CHECK(why(made("{pattern: x}", "rectify"), 2, "agent_a_answer") == "rectify: computed by b");
  CHECK(why(made("{enum: [yes, no]}", "exact"), 1, "agent_a_answer") ==
        "lockstep: computed ahead once a, whose answer it is, has ended");
}

TEST_CASE("what tools return is decoded by nobody") {
  const auto made = [](const std::string& caller, const std::string& relay) {
    return plan(with_header("tools: {find: {python: print(1)}}\nagents:\n  a: " + caller + R"(
  b: {prompt: "{{ agent_a_current }}"}
  c: {prompt: "{{ agent_a_current }}"}
workflow: {topology: fully_connected}
relay: )" + relay));
  };
  for (const std::string caller :
       {"{prompt: hi, tools: [{call: find}], calls: {direct: true}}", "{tools: [{python: {from: user_question}}]}"}) {
    const Plan rectified = made(caller, "rectify");
    CHECK(why(rectified, 1, "agent_a_current") == "full: computed here first");
    CHECK(why(rectified, 2, "agent_a_current") == "rectify: computed by b");
    CHECK(why(made(caller, "exact"), 1, "agent_a_current") == "lockstep: computed ahead once the tools of a have run");
  }
  CHECK(why(made("{prompt: hi, tools: [{call: find}]}", "rectify"), 1, "agent_a_current") == "rectify: decoded by a");
}

}  // namespace baton::test::ahead_forecast_test
