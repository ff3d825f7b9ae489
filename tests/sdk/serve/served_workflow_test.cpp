// SPDX-License-Identifier: Apache-2.0
// Which workflows can be served, under which names, and which of their inputs take the messages.
#include "sdk/serve/chat_request.h"

#include <baton/baton.h>

#include <catch2/catch.hpp>

#include "tests/sdk/serve/running_server.h"

namespace served_workflow_test {

namespace {

using baton::Workflow;
using baton::serve::serve_workflow;
using baton::serve::ServedWorkflow;
using baton::serve::ServedWorkflows;

/// One agent that reads the text inputs; `inputs` in YAML.
Workflow with_inputs(const std::string& inputs, const std::string& messages) {
  return Workflow::parse("version: 1\ninputs: " + inputs + R"(
models: {main: {path: nano}}
agents: {solver: {prompt: {messages: )" +
                         messages + R"(}}}
workflow: {topology: single, agents: [solver]}
)");
}

Workflow two_inputs(const std::string& first, const std::string& second) {
  return with_inputs("{a: " + first + ", b: " + second + "}", R"([{role: user, content: "{{ a }} {{ b }}"}])");
}

std::string message_of(const Workflow& workflow, const std::string& named = "",
                       const std::map<std::string, std::string>& inputs = {}) {
  return serve_workflow("w", workflow, named, inputs).message;
}

int answering_turn(const std::string& agents, const std::string& workflow, const std::string& outputs) {
  const Workflow made = Workflow::parse("version: 1\ninputs: {q: string}\nmodels: {main: {path: nano}}\nagents:\n" +
                                        agents + "workflow: " + workflow + "\n" + outputs);
  return serve_workflow("w", made).answer;
}

}  // namespace

TEST_CASE("the user's message fills the one input that is required, or the only one") {
  const std::string required = "{type: string, required: true}", with_default = "{type: string, default: x}";
  CHECK(message_of(two_inputs(required, with_default)) == "a");
  CHECK(message_of(two_inputs(with_default, required)) == "b");
  CHECK(message_of(two_inputs(required, required), "", {{"a", "x"}}) == "b");
  CHECK(message_of(two_inputs(required, required), "b") == "b");
  CHECK(message_of(with_inputs("{a: " + with_default + "}", R"([{role: user, content: "{{ a }}"}])")) == "a");
}

TEST_CASE("an ambiguous input for the messages is an error that shows how to name it") {
  const std::string required = "{type: string, required: true}", with_default = "{type: string, default: x}";
  CHECK_THROWS_WITH(message_of(two_inputs(required, required)),
                    "workflow 'w': which input is the user's message? Expected one input that is required, found a, b; "
                    "name it with --message w=INPUT, one of: a, b");
  CHECK_THROWS_WITH(message_of(two_inputs(with_default, with_default)),
                    Catch::Contains("found none") && Catch::Contains("one of: a, b"));
  CHECK_THROWS_WITH(message_of(two_inputs(required, required), "c"), Catch::Contains("found 'c'"));
  CHECK_THROWS_WITH(message_of(two_inputs(required, required), "a", {{"c", "x"}}),
                    Catch::Contains("unknown input 'c'"));
  CHECK_THROWS_WITH(message_of(Workflow::parse(R"(
version: 1
inputs: {}
models: {main: {path: nano}}
agents: {solver: {prompt: "Hello"}}
workflow: {topology: single, agents: [solver]}
)")),
                    Catch::Contains("it has no inputs"));
}

TEST_CASE("a workflow that reads only a conversation gets all of it") {
  const ServedWorkflow served = serve_workflow("w", with_inputs("{chat: {type: messages}}", "[{history: chat}]"));
  CHECK(served.message.empty());
  CHECK(served.history == "chat");
  const std::string two = "{a: {type: messages}, b: {type: messages}}";
  CHECK_THROWS_WITH(serve_workflow("w", with_inputs(two, "[{history: a}, {history: b}]")),
                    Catch::Contains("at most one of type messages, found a, b"));
}

TEST_CASE("workflows with steps that ask a person are not served") {
  CHECK_THROWS_WITH(serve_workflow("w", Workflow::parse(R"(
version: 1
inputs: {q: string}
models: {main: {path: nano}}
agents: {solver: {prompt: "{{ q }}"}, approval: {ask: "Is this right? {{ agent_solver_current }}"}}
workflow: {topology: chain, agents: [solver, approval]}
)")),
                    Catch::Contains("its step 'approval' asks a person"));
}

TEST_CASE("names of models are unique, and hold nothing that a path or a header could mean") {
  ServedWorkflows workflows;
  const Workflow team = baton::test::served_team(8);
  workflows.add(serve_workflow("team", team));
  CHECK_THROWS_WITH(workflows.add(serve_workflow("team", team)), Catch::Contains("two workflows are called 'team'"));
  for (const std::string name : {"", "a/b", "a b", "a\"b", "a\nb"})
    CHECK_THROWS_AS(workflows.add(serve_workflow(name, team)), baton::InputError);
  workflows.add(serve_workflow("team-2.b_c", team));
  CHECK(workflows.names() == "team, team-2.b_c");
  CHECK(workflows.find("team-2.b_c") == &workflows.all()[1]);
  CHECK(workflows.find("tea") == nullptr);
}

TEST_CASE("the turn whose tokens are the answer is known where nothing can change what was written") {
  const std::string two = "  a: {prompt: \"{{ q }}\"}\n  b: {prompt: \"{{ agent_a_current }}\"}\n";
  const std::string chain = "{topology: chain, agents: [a, b]}";
  CHECK(answering_turn(two, chain, "") == 1);
  CHECK(answering_turn(two, chain, "outputs: {x: \"{{ agent_a_current }}\"}\n") == 0);
  CHECK(answering_turn(two, "{topology: chain, agents: [a, b], rounds: 2}", "") == 3);
  CHECK(answering_turn(two, chain, "outputs: {x: \"So: {{ agent_b_current }}\"}\n") == -1);
  CHECK(answering_turn(two, chain, "outputs: {x: \"{{ agent_a_current }}\", y: \"{{ agent_b_current }}\"}\n") == -1);
  CHECK(answering_turn(two, "{topology: chain, agents: [a, b], rounds: 2, until: {agent: a, matches: x}}", "") == -1);
  const std::string again =
      "  a: {prompt: \"{{ q }}\"}\n  b: {prompt: \"{{ agent_a_current }}\", retry: {attempts: 2}}\n";
  CHECK(answering_turn(again, chain, "") == -1);
  const std::string skips = "  a: {prompt: \"{{ q }}\"}\n  b: {prompt: \"{{ agent_a_current }}\", on_error: skip}\n";
  CHECK(answering_turn(skips, chain, "") == -1);
}

}  // namespace served_workflow_test
