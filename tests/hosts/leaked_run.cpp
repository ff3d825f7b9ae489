// SPDX-License-Identifier: Apache-2.0
// A host that exits while its run goes on: neither the run nor the engine is ever destroyed.
//
//     baton_leaked_run MODEL MILLISECONDS    exit code 0
#include <baton/baton.h>

#include <chrono>
#include <string>
#include <thread>

int main(int, char** argv) {
  auto* engine = new baton::Engine(baton::Engine::open({.model = argv[1], .device = "cpu", .threads = 2}));
  const auto team = baton::Workflow::parse(R"(
version: 1
name: long
inputs: {question: {type: string, required: true}}
models: {main: {path: nano}}
defaults: {max_tokens: 200}
agents:
  solver: {prompt: {user: "{{ question }}"}}
  checker: {prompt: {user: "{{ question }} {{ agent_solver_current }}"}}
workflow: {topology: chain, agents: [solver, checker], rounds: 50}
outputs: {answer: "{{ agent_checker_current }}"}
)");
  auto* run = new baton::Run(engine->start(team, {.inputs = {{"question", "How many legs do 7 hens have?"}}}));
  if (run->wait_for(std::chrono::milliseconds(std::stoi(argv[2])))) return 1;  // too short for this test
  return 0;
}
