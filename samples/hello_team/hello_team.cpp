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
  solver:
    role: Solver
    prompt:
      system: You are a math expert. Solve the problem step by step. The last line is only the final result.
      user: "Question:\n{{ question }}"
  checker:
    role: Checker
    prompt:
      system: You are an inspector. Solve the problem, then check the answer. The last line is only the final result.
      user: "Question:\n{{ question }}\n\nSolver:\n{{ agent_solver_current }}"
workflow: {topology: chain, agents: [solver, checker]}
outputs: {answer: "{{ agent_checker_current }}"}
)";

int main(int argc, char** argv) {
  const std::string question = argc > 1 ? argv[1] : "Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?";
  try {
    const auto engine = baton::Engine::open({.device = "auto"});
    const auto workflow = baton::Workflow::parse(kTeam);
    const auto run = engine.start(workflow, {.inputs = {{"question", question}}});
    for (const auto& event : run.events()) {
      if (const auto* started = std::get_if<baton::AgentStarted>(&event)) std::cout << "\n[" << started->role << "]\n";
      if (const auto* token = std::get_if<baton::Token>(&event)) std::cout << token->text << std::flush;
    }
    const baton::RunRecord record = run.get();
    std::cout << "\n\n" << record.state << " in " << static_cast<int>(record.wall_ms) << " ms on " << record.device << '\n';
    return record.state == "ok" ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const baton::Error& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
