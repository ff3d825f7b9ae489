// SPDX-License-Identifier: Apache-2.0
// Uses only what is installed: opens a workflow, shows its graph, sees an error, looks for a model.
#include <baton/baton.h>
#include <baton/turns.h>
#include <baton/version.h>

#include <iostream>

int main() {
  const auto workflow = baton::Workflow::parse(R"(
version: 1
name: consumer
inputs: {question: {type: string, required: true}}
models: {main: {path: /no/such/model}}
agents:
  writer: {prompt: {user: "{{ question }}"}}
workflow: {topology: single, agents: [writer]}
outputs: {answer: "{{ agent_writer_current }}"}
)");
  std::cout << "baton " << baton::version() << ": " << workflow.name() << ", " << workflow.turns().size() << " turn\n";
  try {
    baton::Workflow::parse("version: 1\nname: [");
    return 1;
  } catch (const baton::WorkflowError& error) {
    if (error.items.empty() || error.items.front().line == 0) return 2;
  }
  try {
    baton::Engine::open().run(workflow, {.inputs = {{"question", "Why?"}}});
    return 3;
  } catch (const baton::ResourceError& error) {
    if (error.kind != baton::ResourceError::Kind::model) return 4;
  }
  return 0;
}
