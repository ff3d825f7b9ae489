// SPDX-License-Identifier: Apache-2.0
// Servers of workflows through the public face: consent, and how long they live.
#include <baton/baton.h>
#include <baton/session.h>

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/support/folders.h"
#include "tests/support/temp_folder.h"

namespace servers_test {

namespace {

using namespace baton;
using namespace std::chrono_literals;

/// Servers that note their processes in a file.
struct Noted {
  test::TempFolder folder;
  std::filesystem::path log = folder.path() / "log";

  Workflow workflow() const {
    const auto root = test::source_folder();
    return Workflow::parse(R"(version: 1
inputs: {question: string}
models: {main: )" + (root / "samples/models/nano").string() +
                           R"(}
mcp:
  docs: {command: [python3, -S, )" +
                           (root / "tests/sdk/mcp_servers.py").string() + ", good, " + log.string() + R"(]}
agents:
  adder: {tools: [{mcp: {server: docs, tool: add, arguments: {a: 40, b: "{{ question }}"}}}]}
)");
  }

  std::vector<pid_t> processes() const {
    std::ifstream file(log);
    std::vector<pid_t> out;
    for (std::string word; file >> word;) {
      pid_t number = 0;
      if (word == "process" && file >> number) out.push_back(number);
    }
    return out;
  }
};

Engine engine_with(bool servers) {
  EngineOptions options;
  options.device = "cpu";
  options.threads = 1;
  options.allow_servers = servers;
  return Engine::open(options);
}

RunOptions asked(const char* question) {
  RunOptions options;
  options.inputs = {{"question", question}};
  return options;
}

bool gone(pid_t process) {
  for (int i = 0; i < 200; ++i) {
    if (kill(process, 0) != 0) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

}  // namespace

TEST_CASE("a host that allows no servers starts none") {
  const Noted noted;
  const Workflow workflow = noted.workflow();
  const Engine engine = engine_with(false);
  CHECK_THROWS_WITH(engine.run(workflow, asked("2")),
                    Catch::Contains("docs: python3") && Catch::Contains("EngineOptions::allow_servers"));
  CHECK_THROWS_AS(engine.session(workflow).run(asked("2")), InputError);
  CHECK(noted.processes().empty());
}

TEST_CASE("a run's servers end with it") {
  const Noted noted;
  const Engine engine = engine_with(true);
  for (std::size_t run = 1; run <= 2; ++run) {
    const RunRecord record = engine.run(noted.workflow(), asked("2"));
    CHECK(record.state == RunState::ok);
    CHECK(record.outputs.at("answer") == "42");
    REQUIRE(record.servers.size() == 1);
    CHECK(record.servers[0].name == "docs");
    CHECK(record.servers[0].start_ms > 0);
    CHECK(record.servers[0].error.empty());
    REQUIRE(noted.processes().size() == run);
    CHECK(gone(noted.processes().back()));
  }
}

TEST_CASE("a session's servers live as long as it does, and are started again when they have ended") {
  const Noted noted;
  const Engine engine = engine_with(true);
  {
    const Session session = engine.session(noted.workflow());
    CHECK(noted.processes().empty());
    CHECK(session.run(asked("2")).servers[0].start_ms > 0);
    const RunRecord second = session.run(asked("3"));
    CHECK(second.outputs.at("answer") == "43");
    CHECK(second.servers[0].start_ms == 0);
    REQUIRE(noted.processes().size() == 1);

    kill(noted.processes()[0], SIGKILL);
    RunRecord third = session.run(asked("4"));
    if (third.servers[0].start_ms == 0) third = session.run(asked("4"));  // its end may not have been noticed yet
    CHECK(third.outputs.at("answer") == "44");
    CHECK(third.servers[0].start_ms > 0);
    REQUIRE(noted.processes().size() == 2);
    CHECK(kill(noted.processes()[1], 0) == 0);
  }
  CHECK(gone(noted.processes()[1]));
}

}  // namespace servers_test
