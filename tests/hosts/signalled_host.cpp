// SPDX-License-Identifier: Apache-2.0
// A host that gets a signal several thousand times a second, on all of its threads, with a handler that restarts no
// system call: opening, runs of several methods, tools, anchors in files and closing go on as without signals.
//
//     baton_signalled_host MODEL    exit code 0
//
// BATON_TEST_NIGHTLY=1: many rounds
#include <baton/baton.h>

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/thread_time.h"

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::atomic<std::int64_t> handled = 0;

void on_signal(int) { ++handled; }

constexpr const char* kTeam = R"(
version: 1
name: signalled
inputs: {question: {type: string, required: true}}
models: {main: {path: nano}}
defaults: {max_tokens: 24}
relay: {method: full, min_tokens: 1}
agents:
  solver: {prompt: {user: "Question:\n{{ question }}"}}
  checker: {prompt: {user: "{{ question }}\n\nSolver:\n{{ agent_solver_current }}"}}
workflow: {topology: chain, agents: [solver, checker]}
outputs: {answer: "{{ agent_solver_current }}|{{ agent_checker_current }}"}
)";

/// A folder that is removed with everything in it.
struct Folder {
  std::string name = (fs::temp_directory_path() / "baton-signalled-XXXXXX").string();
  fs::path path = ::mkdtemp(name.data());
  ~Folder() { fs::remove_all(path); }
};

/// All that a host may do; returns what came of it.
std::string life(const std::string& model) {
  const Folder folder;
  std::string text;
  for (const char* method : {"full", "lockstep", "verified", "anchors", "anchors"}) {
    std::string warnings;
    {
      const baton::Engine engine =
          baton::Engine::open({.model = model,
                               .device = "cpu",
                               .threads = 2,
                               .kv_budget = std::int64_t{256} << 20,
                               .learned_folder = (folder.path / "anchors").string(),
                               .on_warning = [&](const std::string& message) { warnings += message; }});
      const auto team = baton::Workflow::parse(kTeam, {.set = {{"relay.method", method}}});
      const auto record = engine.run(team, {.inputs = {{"question", "How many legs do 7 hens have?"}}});
      text += std::string(name_of(record.state)) + record.error + "\n";
      if (method != std::string("anchors")) text += record.outputs.at("answer") + "\n";
    }
    text += warnings;
  }
  for (const auto& entry : fs::directory_iterator(folder.path / "anchors"))
    text += entry.path().filename().string() + "\n";
  const baton::Tools tools;
  for (const char* code : {"print(sum(range(1000)) + 1000000)", "import time; time.sleep(0.2); print('late')",
                           "while True: pass", "print('x' * 300000)"}) {
    baton::ToolCall call;
    call.text = std::string("```python\n") + code + "\n```";
    if (code[0] == 'w') call.timeout = 300ms;
    const auto result = tools.call("python", call);
    text += std::to_string(result.ok) + result.text + "\n";
  }
  return text;
}

/// Sends SIGUSR1 to every thread but its own, again and again.
void send_signals(const std::stop_token& stop) {
  const auto self = syscall(SYS_gettid);
  while (!stop.stop_requested()) {
    std::error_code gone;
    for (const auto& task : fs::directory_iterator("/proc/self/task", gone)) {
      const std::string name = task.path().filename().string();
      long id = 0;
      std::from_chars(name.data(), name.data() + name.size(), id);
      if (id != self) syscall(SYS_tgkill, ::getpid(), id, SIGUSR1);
    }
    std::this_thread::sleep_for(200us);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  struct sigaction action {};
  action.sa_handler = on_signal;  // without SA_RESTART
  sigaction(SIGUSR1, &action, nullptr);
  const std::string expected = life(argv[1]);
  if (expected.find("1499500") == expected.npos || expected.find("late") == expected.npos) {  // the tools' answers
    std::fprintf(stderr, "%s\n", expected.c_str());
    return 1;
  }
  for (int i = 0; i < (baton::test::nightly() ? 50 : 1); ++i) {
    std::string found;
    {
      const std::jthread sender(send_signals);
      try {
        found = life(argv[1]);
      } catch (const std::exception& error) {
        found = error.what();
      }
    }
    if (found == expected) continue;
    std::fprintf(stderr, "with signals:\n%s\nwithout:\n%s\n", found.c_str(), expected.c_str());
    return 1;
  }
  std::printf("%lld signals\n", static_cast<long long>(handled));
  return handled > 100 ? 0 : 1;
}
