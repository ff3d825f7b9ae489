// SPDX-License-Identifier: Apache-2.0
// Steps that wait for the host: answers, suspended runs, and runs that go on with what is finished.
#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace ask_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

/// A planner, a step that asks about the plan, a worker that reads the answer; `aside` needs nobody.
struct Team {
  explicit Team(int attempts = 1) {
    engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
      return Scripted{.text = agent_of(prompt) + (prompt.find("yes") == std::string::npos ? "!" : " says yes")};
    });
    builder.add("planner", {});
    PlannedTurn& approval = builder.add("approval", {0});
    approval.messages.clear();
    approval.model.clear();
    approval.retry.attempts = attempts;
    ToolSpec ask;
    ask.tool = kAskTool;
    PromptItem question;
    question.pieces = {{"Is this right: ", "", 0}, {"", "agent_planner_current", 0}};
    ask.options["question"] = "?";
    ask.filled["question"] = question;
    approval.tools = {ask};
    builder.agent("approval").output.texts = {"yes", "no"};
    PlannedTurn& worker = builder.add("worker", {1});
    worker.slots.back().kind = SlotSource::Kind::tool_result;
    builder.add("aside", {});
    builder.output("result", "agent_worker_current");
  }

  RunRecord run(const std::function<void(RunRequest&)>& change = {}) {
    RunRequest request = builder.request(engine);
    request.on_event = [this](const Event& event) {
      if (const auto* one = std::get_if<Asked>(&event)) asked.push_back(*one);
      if (const auto* one = std::get_if<AgentFinished>(&event)) finished.push_back(*one);
    };
    if (change) change(request);
    return run_plan(request);
  }

  PlanBuilder builder;
  std::shared_ptr<ScriptedEngine> engine;
  std::vector<Asked> asked;
  std::vector<AgentFinished> finished;
};

const AgentRecord& turn(const RunRecord& record, const std::string& agent) {
  for (const AgentRecord& one : record.agents) {
    if (one.agent == agent) return one;
  }
  throw std::invalid_argument(agent);
}

}  // namespace

TEST_CASE("the host's answer is the output of a step that asks") {
  Team team;
  team.builder.plan.turns[1].id = "gate";
  const RunRecord record = team.run([](RunRequest& request) {
    request.on_ask = [](const Asked& asked, const std::stop_token&) {
      CHECK(asked.turn == "gate");
      CHECK(asked.question == "Is this right: planner!");
      return std::optional<std::string>("yes");
    };
  });
  CHECK(record.state == RunState::ok);
  CHECK(turn(record, "approval").output == "yes");
  CHECK(turn(record, "approval").answer == "yes");
  CHECK(record.outputs.at("result") == "worker says yes");
  REQUIRE(turn(record, "approval").tools.size() == 1);
  CHECK(turn(record, "approval").tools[0].tool == "ask");
  CHECK(turn(record, "approval").tools[0].arguments == "Is this right: planner!");
  CHECK(turn(record, "approval").tools[0].result == "yes");
  REQUIRE(team.asked.size() == 1);
  CHECK(team.asked[0].agent == "approval");
  CHECK(team.asked[0].turn == "gate");
  CHECK(team.asked[0].choices == std::vector<std::string>{"yes", "no"});
}

TEST_CASE("a run without an answer does what it can, is suspended, and goes on later") {
  Team team;
  const RunRecord record = team.run();
  CHECK(record.state == RunState::suspended);
  CHECK(record.error == "the answer to 'approval' is missing");
  CHECK_FALSE(record.error_kind);
  CHECK(turn(record, "planner").state == TurnState::ok);
  CHECK(turn(record, "aside").state == TurnState::ok);
  CHECK(turn(record, "approval").state == TurnState::cancelled);
  CHECK(turn(record, "approval").tools.empty());
  CHECK(turn(record, "worker").state == TurnState::skipped);
  CHECK(team.asked.size() == 1);

  Team later;
  std::vector<AgentFinished> done;
  for (AgentFinished& one : team.finished) {
    one.tokens.clear();  // the toy tokenizer does not stream
    if (one.record.state == TurnState::ok) done.push_back(one);
  }
  REQUIRE(done.size() == 2);
  for (AgentFinished& one : done) one.record.turn.clear();  // as records without it
  const RunRecord resumed = later.run([&](RunRequest& request) {
    request.finished = done;
    request.answers = {{"approval", "yes"}};
  });
  CHECK(resumed.state == RunState::ok);
  CHECK(resumed.outputs.at("result") == "worker says yes");
  CHECK(turn(resumed, "planner").turn == "planner");
  CHECK(later.engine->prompts.size() == 1);  // the worker's alone
  CHECK(later.asked.empty());

  Team without;
  const RunRecord again = without.run([&](RunRequest& request) { request.finished = done; });
  CHECK(again.state == RunState::suspended);
  CHECK(without.engine->prompts.empty());
  CHECK(without.asked.size() == 1);
}

TEST_CASE("an answer that does not fit fails the attempt, and the next one asks again") {
  Team once;
  RunRecord record = once.run([](RunRequest& request) { request.answers = {{"approval", "perhaps"}}; });
  CHECK(record.state == RunState::failed);
  CHECK(record.error == "agent 'approval' failed: the output is none of the texts of its enum");

  Team twice(3);
  std::vector<std::string> answers = {"perhaps", "no"};
  record = twice.run([&](RunRequest& request) {
    request.answers = {{"approval", "maybe"}};
    request.on_ask = [&, next = std::size_t{0}](const Asked&, const std::stop_token&) mutable {
      return std::optional(answers.at(next++));
    };
  });
  INFO(record.error);
  CHECK(record.state == RunState::ok);
  CHECK(turn(record, "approval").output == "no");
  CHECK(turn(record, "approval").attempts == 3);
  CHECK(twice.asked.size() == 2);
}

TEST_CASE("a host that throws fails the step, and one that hangs ends with the run or the step") {
  Team team;
  RunRecord record = team.run([](RunRequest& request) {
    request.on_ask = [](const Asked&, const std::stop_token&) -> std::optional<std::string> {
      throw std::runtime_error("the window was closed");
    };
  });
  CHECK(record.state == RunState::failed);
  CHECK_THAT(record.error, Catch::Contains("the window was closed"));

  const auto hang = [](const Asked&, const std::stop_token& stop) -> std::optional<std::string> {
    while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return std::nullopt;
  };
  Team timed;
  timed.builder.plan.turns[1].timeout = 30ms;
  record = timed.run([&](RunRequest& request) { request.on_ask = hang; });
  CHECK(record.state == RunState::timeout);
  CHECK(turn(record, "approval").error == "the attempt took longer than 30 ms");

  Team stopped;
  std::stop_source stop;
  std::jthread later([&] {
    while (stopped.engine->prompts.size() < 2) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);
    stop.request_stop();
  });
  record = stopped.run([&](RunRequest& request) {
    request.on_ask = hang;
    request.stop = stop.get_token();
  });
  CHECK(record.state == RunState::cancelled);
}

TEST_CASE("what the host throws may be retried") {
  Team team(2);
  int calls = 0;
  const RunRecord record = team.run([&](RunRequest& request) {
    request.on_ask = [&](const Asked&, const std::stop_token&) -> std::optional<std::string> {
      if (++calls == 1) throw std::runtime_error("the window was closed");
      return "yes";
    };
  });
  CHECK(record.state == RunState::ok);
  CHECK(turn(record, "approval").attempts == 2);
}

TEST_CASE("while the host thinks, the others go on") {
  Team team;
  team.builder.spec.topology.max_parallel = 1;
  std::atomic<bool> aside_is_over = false;
  const RunRecord record = team.run([&](RunRequest& request) {
    request.on_event = [&](const Event& event) {
      const auto* one = std::get_if<AgentFinished>(&event);
      if (one != nullptr && one->record.agent == "aside") aside_is_over = true;
    };
    request.on_ask = [&](const Asked&, const std::stop_token&) -> std::optional<std::string> {
      const auto until = std::chrono::steady_clock::now() + 20s;
      while (!aside_is_over && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
      return aside_is_over ? "yes" : "no";
    };
  });
  CHECK(record.state == RunState::ok);
  CHECK(turn(record, "approval").output == "yes");
}

TEST_CASE("a step that waits takes no place of those that run") {
  Team team;
  team.builder.spec.topology.max_parallel = 1;
  const RunRecord record = team.run();
  CHECK(record.state == RunState::suspended);
  CHECK(turn(record, "aside").state == TurnState::ok);
}

TEST_CASE("a step that nobody needs to answer can be skipped or replaced") {
  Team team;
  team.builder.plan.turns[1].on_error = OnError::fallback;
  team.builder.plan.turns[1].fallback = "no";
  team.builder.plan.turns[1].timeout = 20ms;
  const RunRecord record = team.run([](RunRequest& request) {
    request.on_ask = [](const Asked&, const std::stop_token& stop) -> std::optional<std::string> {
      while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
      return std::nullopt;
    };
  });
  CHECK(record.state == RunState::ok);
  CHECK(turn(record, "approval").output == "no");
}

TEST_CASE("a run whose servers are not ready starts no turn") {
  Team team;
  const RunRecord record = team.run([](RunRequest& request) {
    request.unready = "MCP server 'docs' is away";
    request.engines.clear();
    request.servers = [] { return std::vector<ServerRecord>{{"docs", "", 0, 3.0, "away"}}; };
  });
  CHECK(record.state == RunState::failed);
  CHECK(record.error == "MCP server 'docs' is away");
  CHECK(record.error_kind == ErrorKind::resources);
  REQUIRE(record.servers.size() == 1);
  CHECK(record.servers[0].error == "away");
  CHECK_THAT(record.to_json(), Catch::Contains(R"("servers": [)"));
  CHECK(team.engine->prompts.empty());
}

}  // namespace ask_test
