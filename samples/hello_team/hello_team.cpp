// SPDX-License-Identifier: Apache-2.0
// Two agents in this process: one answers, one checks. Uses only the public headers.
//
//   hello_team ["A question"]        with the shipped model, or the one in BATON_MODEL
#include <baton/baton.h>

#include <cstdlib>
#include <iostream>

constexpr auto kTeam = R"(
version: 1
name: hello-team
inputs: {question: {type: string, required: true}}
models: {main: {path: "${env:BATON_MODEL:-nano}"}}
defaults: {max_tokens: 120}
agents:
  analyst:
    role: Mathematical Analyst
    prompt:
      system: >-
        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.
        Repeat the problem, name each quantity with a letter, then put in the numbers.
        The last line is only the final result.
      user: "Question:\n{{ question }}"
  inspector:
    role: Inspector
    prompt:
      system: >-
        You are an inspector. You will be given a math problem and answers of other agents.
        Repeat the problem, solve it step by step, then check every answer and say which step is wrong.
        The last line is only the final result.
      user: "Question:\n{{ question }}\n\nAnalyst:\n{{ agent_analyst_current }}"
workflow: {topology: chain, agents: [analyst, inspector]}
outputs: {answer: "{{ agent_inspector_current }}"}
)";

int main(int argc, char** argv) {
  const std::string question =
      argc > 1 ? argv[1]
               : "Noah pays for 2 books at 7 coins each with 75 coins. How many coins does he get back from the shop?";
  try {
    const auto engine = baton::Engine::open({.device = "auto"});
    const auto workflow = baton::Workflow::parse(kTeam);
    const auto run = engine.start(workflow, {.inputs = {{"question", question}}});
    for (const auto& event : run.events()) {
      if (const auto* started = std::get_if<baton::AgentStarted>(&event)) std::cout << "\n[" << started->role << "]\n";
      if (const auto* token = std::get_if<baton::Token>(&event)) std::cout << token->text << std::flush;
    }
    const baton::RunRecord record = run.get();
    std::cout << "\n\n"
              << name_of(record.state) << " in " << static_cast<int>(record.wall_ms) << " ms on " << record.device
              << '\n';
    return record.state == baton::RunState::ok ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const baton::Error& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
