// SPDX-License-Identifier: Apache-2.0
// What happens to a run when agents, engines, time or the host's callback fail.
#include <atomic>
#include <catch2/catch.hpp>

#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "tests/support/tiny_engine.h"
#include "workflows/run/executor.h"

namespace executor_failure_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

Scripted broken(const std::string& error) { return {.text = "half", .reason = FinishReason::error, .error = error}; }

/// `a` fails as often as told, everything else answers "<agent>!".
ScriptedEngine::Script a_fails(int times) {
  return [left = times](const std::string& prompt) mutable {
    if (agent_of(prompt) == "a" && left-- > 0) return broken("boom");
    return Scripted{.text = agent_of(prompt) + "!"};
  };
}

struct Observed {
  RunRecord record;
  std::vector<std::string> warnings;
  std::vector<std::string> prompts;
};

Observed run(PlanBuilder& builder, ScriptedEngine::Script script) {
  auto engine = std::make_shared<ScriptedEngine>(std::move(script));
  RunRequest request = builder.request(engine);
  Observed observed;
  request.on_event = [&](const Event& event) {
    if (const Warning* warning = std::get_if<Warning>(&event)) observed.warnings.push_back(warning->message);
  };
  observed.record = run_plan(request);
  observed.prompts = engine->prompts;
  CHECK(engine->open() == 0);
  return observed;
}

}  // namespace

TEST_CASE("a prompt without a token is refused by the engine, and prepared once") {
  PlanBuilder builder;
  PlannedTurn& turn = builder.add("a", {});
  turn.messages = {{"user", {{"", "question"}}}};
  turn.tools.push_back(tool_spec("count", ""));
  int calls = 0;
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("count", [&](const ToolCall&) {
    return ++calls, ToolResult{true, ""};
  }));
  builder.tools = registry;
  RunRequest request = builder.request(tiny_engine());  // without a chat template: nothing stands around the texts
  request.inputs = {{"question", ""}};
  request.timeout = 10s;
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::failed);
  CHECK(record.agents.at(0).error == "the prompt has no tokens; expected at least 1");
  CHECK(calls == 1);
}

TEST_CASE("a failed agent ends the run: what runs is cancelled, what waits is skipped") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("slow", {});
  builder.add("b", {0});
  const Observed observed = run(builder, [](const std::string& prompt) {
    if (agent_of(prompt) == "a") return broken("boom");
    return Scripted{.text = "long answer", .per_token = 50ms};
  });
  CHECK(observed.record.state == RunState::failed);
  CHECK(observed.record.error == "agent 'a' failed: boom");
  CHECK(observed.record.error_kind == ErrorKind::agent);
  REQUIRE(observed.record.agents.size() == 3);
  CHECK(observed.record.agents[0].state == TurnState::failed);
  CHECK(observed.record.agents[0].error == "boom");
  CHECK(observed.record.agents[0].finish_reason == FinishReason::error);
  CHECK(observed.record.agents[1].state == TurnState::cancelled);
  CHECK(observed.record.agents[2].state == TurnState::skipped);
}

TEST_CASE("on_error skip and fallback let the run go on") {
  PlanBuilder builder;
  builder.add("a", {}).on_error = OnError::skip;
  builder.add("b", {0});
  Observed observed = run(builder, a_fails(1));
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[0].state == TurnState::failed);
  CHECK(observed.prompts.back().find("role:b|why?||") != std::string::npos);
  CHECK(observed.warnings == std::vector<std::string>{"agent 'a' failed: boom"});

  builder.plan.turns[0].on_error = OnError::fallback;
  builder.plan.turns[0].fallback = "<|im_end|>";
  observed = run(builder, a_fails(1));
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[0].output == "<|im_end|>");
  CHECK(observed.record.agents[1].slots[1].tokens == 10);  // plain text
}

TEST_CASE("retry tries again with another seed, and says so") {
  PlanBuilder builder;
  builder.add("a", {}).retry = {.attempts = 3, .backoff = 5ms};
  Observed observed = run(builder, a_fails(2));
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[0].attempts == 3);
  CHECK(observed.record.agents[0].output == "a!");
  CHECK(observed.record.agents[0].error.empty());
  CHECK(observed.prompts.size() == 3);
  CHECK(observed.prompts[2] == observed.prompts[0]);
  CHECK(observed.warnings.at(1) == "agent 'a': attempt 2 of 3 failed: boom");
  CHECK(observed.record.wall_ms >= 15.0);  // 5 and then 10

  observed = run(builder, a_fails(3));
  CHECK(observed.record.state == RunState::failed);
  CHECK(observed.record.agents[0].attempts == 3);
}

TEST_CASE("with retry, an output without the answer is a failed attempt") {
  PlanBuilder builder;
  builder.add("a", {}).retry = {.attempts = 2, .backoff = 0ms};
  builder.agent("a").output.pattern = "is ([0-9]+)";
  Observed observed = run(builder, [first = true](const std::string&) mutable {
    return Scripted{.text = std::exchange(first, false) ? "hm" : "is 4"};
  });
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[0].answer == "4");
  observed = run(builder, [](const std::string&) { return Scripted{.text = "hm"}; });
  CHECK(observed.record.state == RunState::failed);
  CHECK(observed.record.error == "agent 'a' failed: the output does not match the pattern 'is ([0-9]+)'");
}

TEST_CASE("an engine that refuses for memory is asked again, and is a matter of resources") {
  PlanBuilder builder;
  builder.add("a", {}).retry = {.attempts = 2, .backoff = 0ms};
  Observed observed = run(builder, [first = true](const std::string&) mutable {
    return Scripted{.text = "ok", .refused = std::exchange(first, false) ? "no room" : ""};
  });
  CHECK(observed.record.state == RunState::ok);
  observed = run(builder, [](const std::string&) { return Scripted{.text = "", .refused = "no room"}; });
  CHECK(observed.record.state == RunState::failed);
  CHECK(observed.record.error_kind == ErrorKind::resources);
  CHECK(observed.record.agents[0].error == "no room");
}

TEST_CASE("a prompt that never fits says what most of it is, and whose fault that is") {
  using Kind = EngineError::Kind;
  for (const Kind kind : {Kind::too_long, Kind::over_budget}) {
    PlanBuilder builder;
    builder.add("a", {}).retry = {.attempts = 3, .backoff = 0ms};
    builder.add("b", {0}).retry = {.attempts = 3, .backoff = 0ms};
    int refused = 0;
    const auto run_with = [&](const std::string& question, const std::string& said) {
      refused = 0;
      RunRequest request = builder.request(std::make_shared<ScriptedEngine>([&](const std::string& prompt) {
        const bool is_b = agent_of(prompt) == "b";
        refused += is_b ? 1 : 0;
        return Scripted{.text = said, .refused = is_b ? "too much" : "", .why = kind};
      }));
      request.inputs["question"] = question;
      return run_plan(request);
    };
    RunRecord record = run_with(std::string(500, 'q'), "short");
    CHECK(record.state == RunState::failed);
    CHECK(record.error_kind == ErrorKind::input);
    CHECK(record.error == "agent 'b' failed: too much; of the prompt's tokens, 500 are those of input 'question'");
    CHECK(refused == 1);  // it would not fit the next time
    record = run_with("short", std::string(400, 's'));
    CHECK(record.error_kind == (kind == Kind::too_long ? ErrorKind::agent : ErrorKind::resources));
    CHECK(record.error == "agent 'b' failed: too much; of the prompt's tokens, 400 are those of 'agent_a_current'");
  }
}

TEST_CASE("KV that memory could not keep for its readers is told, with the turn that wrote it") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  const Observed observed = run(builder, [](const std::string& prompt) {
    return Scripted{.text = "ok", .lost_kv = agent_of(prompt) == "a" ? "no room" : ""};
  });
  CHECK(observed.record.state == RunState::ok);
  REQUIRE(observed.record.warnings.size() == 1);
  CHECK(observed.record.warnings[0].code == WarningCode::hand_over_lost);
  CHECK(observed.record.warnings[0].turn == "a");
  CHECK_THAT(observed.record.warnings[0].message, Catch::Contains("no room"));
}

TEST_CASE("a model without an engine is refused before anything starts") {
  PlanBuilder builder;
  builder.add("a", {});
  RunRequest request = builder.request(nullptr);
  int events = 0;
  request.on_event = [&](const Event&) { ++events; };
  CHECK_THROWS_WITH(run_plan(request), "run_plan: no engine for model 'main'");
  request.engines.clear();
  CHECK_THROWS_AS(run_plan(request), std::invalid_argument);
  CHECK(events == 0);
}

TEST_CASE("an answer that max_tokens or the context cuts off is marked, with a warning") {
  PlanBuilder builder;
  builder.add("a", {}).max_tokens = 3;
  builder.add("b", {0}).max_tokens = 50;
  builder.add("c", {1}).max_tokens = 50;
  const Observed observed = run(builder, [](const std::string& prompt) {
    const bool cut = agent_of(prompt) != "c";
    return Scripted{.text = "abc", .reason = cut ? FinishReason::length : FinishReason::eos};
  });
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[0].truncated);
  CHECK(observed.record.agents[1].truncated);
  CHECK_FALSE(observed.record.agents[2].truncated);
  CHECK(observed.warnings ==
        std::vector<std::string>{"agent 'a': the answer was cut off after 3 tokens, its max_tokens",
                                 "agent 'b': the answer was cut off after 3 tokens, where the model's context ends"});
}

TEST_CASE("a prompt that cannot be built fails its agent") {
  PlanBuilder builder;
  builder.add("a", {}).messages[0].pieces.push_back({"", "agent_nobody_current"});
  const Observed observed = run(builder, a_fails(0));
  CHECK(observed.record.state == RunState::failed);
  CHECK(observed.record.agents[0].error == "the plan has no source for the placeholder 'agent_nobody_current'");
}

TEST_CASE("an agent that takes too long is cut off, keeping what it wrote") {
  PlanBuilder builder;
  builder.add("a", {}).timeout = 100ms;
  builder.add("b", {0});
  const auto slow = [](const std::string& prompt) {
    return Scripted{.text = std::string(1000, 'x'), .per_token = agent_of(prompt) == "a" ? 5ms : 0ms};
  };
  Observed observed = run(builder, slow);
  CHECK(observed.record.state == RunState::timeout);
  CHECK(observed.record.error == "agent 'a' failed: the attempt took longer than 100 ms");
  CHECK(observed.record.agents[0].state == TurnState::failed);
  CHECK_FALSE(observed.record.agents[0].output.empty());
  CHECK(observed.record.wall_ms < 2000.0);

  builder.plan.turns[0].on_error = OnError::skip;
  observed = run(builder, slow);
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[1].slots[1].tokens == 0);

  builder.plan.turns[0].retry = {.attempts = 3, .backoff = 0ms};
  observed = run(builder, [tries = 0, slow](const std::string& prompt) mutable {
    return ++tries < 3 ? slow(prompt) : Scripted{.text = "done"};
  });
  CHECK(observed.record.state == RunState::ok);
  CHECK(observed.record.agents[0].output == "done");
}

TEST_CASE("the whole run has a timeout, also while it pauses before another attempt") {
  PlanBuilder builder;
  builder.add("a", {}).retry = {.attempts = 5, .backoff = 10s};
  builder.add("b", {});
  builder.add("c", {1});
  RunRequest request = builder.request(std::make_shared<ScriptedEngine>([](const std::string& prompt) {
    return agent_of(prompt) == "a" ? broken("boom") : Scripted{.text = std::string(1000, 'x'), .per_token = 5ms};
  }));
  request.timeout = 100ms;
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::timeout);
  CHECK(record.error == "the run took longer than 100 ms");
  CHECK(record.agents[0].state == TurnState::cancelled);
  CHECK(record.agents[1].state == TurnState::cancelled);
  CHECK_FALSE(record.agents[1].output.empty());
  CHECK(record.agents[2].state == TurnState::skipped);
  CHECK(record.wall_ms < 2000.0);
}

TEST_CASE("a callback that throws ends the run and is not called again") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  std::size_t all = 0;
  {
    RunRequest request = builder.request(std::make_shared<ScriptedEngine>(a_fails(0)));
    request.on_event = [&](const Event&) { ++all; };
    run_plan(request);
  }
  for (std::size_t bad = 0; bad < all; ++bad) {
    auto engine = std::make_shared<ScriptedEngine>(a_fails(0));
    RunRequest request = builder.request(engine);
    std::size_t calls = 0;
    request.on_event = [&](const Event&) {
      if (calls++ == bad) throw std::runtime_error("host");
    };
    const RunRecord record = run_plan(request);
    CHECK(record.state == RunState::failed);
    CHECK(record.error == "the event callback threw: host");
    CHECK(record.error_kind == ErrorKind::host);
    CHECK(calls == bad + 1);
    CHECK(engine->open() == 0);
  }
}

}  // namespace executor_failure_test
