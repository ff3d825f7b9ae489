// SPDX-License-Identifier: Apache-2.0
// A conversation in a terminal: a session, whose agent remembers what was said, so that only new text is computed.
// Ctrl-C ends an answer. The shipped model knows word problems alone; for a conversation name another one.
//
//   chat [MODEL]        a folder, a .gguf file, a name or hf:ORG/NAME
#include <baton/baton.h>
#include <baton/session.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

namespace {

constexpr auto kAssistant = R"(
version: 1
name: chat
inputs: {message: {type: string, required: true}}
models: {main: nano}
defaults: {max_tokens: 400}
agents:
  assistant: {prompt: {system: You are a helpful assistant. Answer briefly., user: "{{ message }}"}}
workflow: {topology: single, agents: [assistant]}
outputs: {answer: "{{ agent_assistant_current }}"}
)";

volatile std::sig_atomic_t interrupted = 0;

extern "C" void on_interrupt(int) {
  interrupted = 1;
  std::signal(SIGINT, SIG_DFL);  // the next one ends the program
}

/// Prints the answer as it is written, and how much of the conversation was computed again.
void answer(const baton::Session& session, const std::string& message) {
  interrupted = 0;
  std::signal(SIGINT, on_interrupt);
  baton::Run run = session.start({.inputs = {{"message", message}}});
  for (const auto& event : run.events()) {
    if (interrupted != 0) run.stop();
    if (const auto* token = std::get_if<baton::Token>(&event)) std::cout << token->text << std::flush;
  }
  std::signal(SIGINT, SIG_DFL);
  const baton::RunRecord record = run.get();
  std::cout << '\n';
  if (record.state != baton::RunState::ok) {
    std::cout << '(' << name_of(record.state) << (record.error.empty() ? "" : ": ") << record.error << ")\n";
    return;  // nothing of it is remembered
  }
  const baton::AgentRecord& agent = record.agents.front();
  std::cout << '(' << agent.prompt_tokens << " tokens read, of which " << (agent.history ? agent.history->continued : 0)
            << " were kept)\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto engine = baton::Engine::open({.model = argc > 1 ? argv[1] : ""});
    const auto workflow = baton::Workflow::parse(kAssistant);
    engine.prepare(workflow);
    const baton::Session session = engine.session(workflow);
    std::cout << "/back forgets the last message and its answer, /quit ends.\n";
    for (std::string line; std::cout << "> " << std::flush && std::getline(std::cin, line);) {
      if (line == "/quit") break;
      if (line == "/back") {
        if (session.rewindable() > 0) session.rewind();
        std::cout << '(' << session.runs() << " remembered)\n";
      } else if (!line.empty()) {
        answer(session, line);
      }
    }
    return EXIT_SUCCESS;
  } catch (const baton::Error& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
