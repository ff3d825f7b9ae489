// SPDX-License-Identifier: Apache-2.0
// Steps that ask, through the public faces.
#include <baton/baton.h>
#include <baton/session.h>
#include <baton/turns.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/sdk/asking_team.h"

namespace ask_test {

namespace {

using namespace baton;

using test::asking;

const baton::Engine& host_engine() {
  static const baton::Engine engine = baton::Engine::open({.device = "cpu", .threads = 2});
  return engine;
}

}  // namespace

TEST_CASE("a host answers, or goes on later with what is finished") {
  const auto workflow = baton::Workflow::parse(asking());
  CHECK(workflow.turns()[1].asks);
  CHECK_FALSE(workflow.turns()[0].asks);
  RunOptions options;
  options.inputs = {{"question", "What is 6 x 7?"}};
  options.on_ask = [](const Asked& asked, const std::stop_token&) {
    CHECK(asked.question.starts_with("Right? "));
    return std::optional<std::string>("yes");
  };
  const RunRecord whole = host_engine().run(workflow, options);
  CHECK(whole.state == RunState::ok);

  std::vector<AgentFinished> finished;
  options.on_ask = {};
  options.on_event = [&](const Event& event) {
    const auto* one = std::get_if<AgentFinished>(&event);
    if (one != nullptr && one->record.state == TurnState::ok) finished.push_back(*one);
  };
  CHECK(host_engine().run(workflow, options).state == RunState::suspended);
  REQUIRE(finished.size() == 1);
  options.finished = finished;
  options.answers = {{"approval", "yes"}};
  CHECK(host_engine().run(workflow, options).outputs == whole.outputs);

  options.answers = {{"solver", "yes"}};
  CHECK_THROWS_AS(host_engine().run(workflow, options), InputError);
  options.answers = {{"approval", "y\xff"}};
  CHECK_THROWS_WITH(host_engine().run(workflow, options), "answers: that to 'approval' is not valid UTF-8");
}

TEST_CASE("in a question the host cannot wait for the run that asks") {
  const auto workflow = baton::Workflow::parse(asking());
  RunOptions options;
  options.inputs = {{"question", "What is 6 x 7?"}};
  std::optional<Run> run;
  std::atomic<bool> refused = false, started = false;
  options.on_ask = [&](const Asked&, const std::stop_token&) -> std::optional<std::string> {
    while (!started) std::this_thread::yield();
    try {
      run->get();
    } catch (const InputError&) {
      refused = true;
    }
    return "no";
  };
  run.emplace(host_engine().start(workflow, options));
  started = true;
  CHECK(run->get().state == RunState::ok);
  CHECK(refused);
}

TEST_CASE("a run of a session that is suspended is not remembered") {
  const auto workflow = baton::Workflow::parse(asking());
  const Session session = host_engine().session(workflow);
  RunOptions options;
  options.inputs = {{"question", "What is 6 x 7?"}};
  CHECK(session.run(options).state == RunState::suspended);
  CHECK(session.runs() == 0);
  options.answers = {{"approval", "no"}};
  CHECK(session.run(options).state == RunState::ok);
  CHECK(session.runs() == 1);
}

}  // namespace ask_test
