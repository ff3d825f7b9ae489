// SPDX-License-Identifier: Apache-2.0
// Workflows under lockstep on a real engine: the outputs of full prefill, token for token, whatever the graph, and
// nothing left over whatever fails.
#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "tests/support/tiny_model.h"
#include "workflows/run/executor.h"

namespace lockstep_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

std::shared_ptr<StepEngine> engine_of(
    LocalEngineOptions options = {},
    const TinyOptions& weights = {
        .layers = 2, .width = 16, .heads = 2, .kv_heads = 1, .head_dim = 8, .ffn_width = 16, .context = 1024}) {
  auto backend = make_cpu_backend(2);
  auto model = make_tiny_model(*backend, weights);
  return std::make_shared<StepEngine>(std::move(backend), std::move(model), options);
}

void use(PlanBuilder& builder, const std::string& method) {
  builder.plan.relay = method;
  builder.plan.reuse.method = find_method(method);
  builder.plan.reuse.prefix = false;
}

void answer_with(PlanBuilder& builder, std::int32_t tokens) {
  for (PlannedTurn& turn : builder.plan.turns) {
    turn.max_tokens = tokens;
    turn.sampling.temperature = 1.0f;  // random weights say the same again and again otherwise
  }
}

/// a -> b -> c, all of them read by d; e reads b and has a condition; a second round of a and b reads the first.
PlanBuilder graph() {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  builder.add("c", {0, 1});
  PlannedTurn& e = builder.add("e", {1});
  e.when = ConditionSpec{"b", "[a-z]", false, {}};
  builder.add("d", {0, 1, 2, 3});
  builder.add("a", {0, 1, 4}, 2);
  builder.add("b", {1, 5}, 2);
  return builder;
}

/// Three at once, then one that reads them.
PlanBuilder parallel() {
  PlanBuilder builder;
  for (const char* agent : {"a", "b", "c"}) builder.add(agent, {});
  builder.add("d", {0, 1, 2});
  return builder;
}

std::vector<std::string> outputs(const RunRecord& record) {
  std::vector<std::string> all;
  for (const AgentRecord& agent : record.agents) all.push_back(std::string(name_of(agent.state)) + ":" + agent.output);
  return all;
}

std::vector<std::string> run(PlanBuilder builder, const std::shared_ptr<InferenceEngine>& engine,
                             const std::string& method, std::uint64_t seed) {
  use(builder, method);
  RunRequest request = builder.request(engine);
  request.seed = seed;
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::ok);
  return outputs(record);
}

void expect_empty(const InferenceEngine& engine) {
  for (int i = 0; i < 2000 && engine.stats().kv_bytes != 0; ++i) std::this_thread::sleep_for(1ms);
  CHECK(engine.stats().kv_bytes == 0);
}

}  // namespace

TEST_CASE("lockstep: any graph gives the outputs of full prefill, with quantised weights too") {
  TinyOptions quantized = quantized_tiny(BlockType::q4_1);
  quantized.context = 1024;
  const auto engine = GENERATE_COPY(engine_of(), engine_of({}, quantized));
  for (PlanBuilder builder : {graph(), parallel()}) {
    answer_with(builder, 40);
    for (std::uint64_t seed = 1; seed <= 6; ++seed)
      CHECK(run(builder, engine, "lockstep", seed) == run(builder, engine, "full", seed));
  }
  CHECK(engine->stats().rows_ahead > 1000);
  expect_empty(*engine);
}

TEST_CASE("lockstep: a record says what was computed ahead") {
  const auto engine = engine_of();
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  builder.plan.turns[0].max_tokens = 120;
  use(builder, "lockstep");
  RunRecord record = run_plan(builder.request(engine));
  // A machine that is busy elsewhere may learn of the prompt only when its turn begins.
  for (int i = 0; i < 100 && record.agents.at(1).slots.at(1).ahead_tokens == 0; ++i)
    record = run_plan(builder.request(engine));
  REQUIRE(record.agents.size() == 2);
  CHECK(record.agents[0].kv.ahead == 0);
  const AgentRecord& b = record.agents[1];
  CHECK(b.kv.ahead > 0);
  CHECK(b.kv.ahead <= b.kv.computed);
  CHECK(b.kv.computed == b.kv.entries);
  CHECK(b.kv.reuse_rate == 0);
  REQUIRE(b.slots.size() == 2);
  CHECK(b.slots[1].method == "lockstep");
  CHECK(b.slots[1].ahead_tokens > 0);
  CHECK(b.slots[1].ahead_tokens <= b.slots[1].tokens);
  CHECK(b.slots[1].reused_tokens == 0);
}

TEST_CASE("lockstep: tools between agents, attempts that fail, agents without output") {
  const auto engine = engine_of();
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    PlanBuilder builder = graph();
    answer_with(builder, 30);
    auto registry = std::make_shared<ToolRegistry>();
    registry->add(std::make_shared<FunctionTool>("check", [](const ToolCall& call) {
      return ToolResult{call.text.size() % 2 == 0, "result of " + std::to_string(call.text.size())};
    }));
    builder.tools = registry;
    PlannedTurn& c = builder.plan.turns[2];
    c.tools.push_back(tool_spec("check", "agent_b_current"));
    c.tells_errors = true;  // the tool fails if the answer's length is odd
    c.slots.insert(c.slots.begin() + 1, {"condition_c_current", SlotSource::Kind::tool_result, 2, &full_method(), ""});
    c.messages[0].pieces.insert(c.messages[0].pieces.begin() + 3, {{"", "condition_c_current"}, {"/", ""}});
    PlannedTurn& d = builder.plan.turns[4];
    d.slots.push_back({"condition_c_current", SlotSource::Kind::tool_result, 2, &full_method(), ""});
    d.messages[0].pieces.push_back({"", "condition_c_current"});
    builder.agent("b").output.pattern = seed % 2 == 0 ? "[aeiou]" : "no such answer";
    builder.plan.turns[1].retry = {3, 1ms};
    builder.plan.turns[1].on_error = seed % 2 == 0 ? OnError::skip : OnError::fallback;
    builder.plan.turns[1].fallback = "the fallback";
    builder.plan.turns[6].on_error = OnError::skip;  // b again
    CHECK(run(builder, engine, "lockstep", seed) == run(builder, engine, "full", seed));
  }
  expect_empty(*engine);
}

TEST_CASE("lockstep: 16 runs from 16 threads give what each gives alone") {
  const auto engine = engine_of({.max_sequences = 12});
  PlanBuilder builder = graph();
  answer_with(builder, 24);
  std::vector<std::vector<std::string>> alone, together(16);
  for (std::uint64_t seed = 0; seed < 16; ++seed) alone.push_back(run(builder, engine_of(), "full", seed));
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    threads.emplace_back([&, seed] {
      PlanBuilder own = builder;
      use(own, "lockstep");
      RunRequest request = own.request(engine);
      request.seed = seed;
      together[seed] = outputs(run_plan(request));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(together == alone);
  expect_empty(*engine);
}

TEST_CASE("lockstep: 10000 runs with random cancels, tool failures and timeouts leave nothing behind") {
  const auto engine = engine_of({.kv_budget_bytes = 4 << 20, .max_sequences = 6});
  std::atomic<int> ok{0}, cancelled{0}, timeouts{0}, others{0};
  const auto storm = [&](std::uint64_t seed, int runs) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::uint64_t n) { return random() % n; };
    for (int i = 0; i < runs; ++i) {
      PlanBuilder builder = pick(2) == 0 ? graph() : parallel();
      use(builder, "lockstep");
      auto registry = std::make_shared<ToolRegistry>();
      registry->add(std::make_shared<FunctionTool>("tool", [kind = pick(5)](const ToolCall&) -> ToolResult {
        if (kind == 0) throw std::runtime_error("broken");
        return {kind != 1, kind == 2 ? std::string() : "seven"};
      }));
      builder.tools = registry;
      for (PlannedTurn& turn : builder.plan.turns) {
        turn.max_tokens = static_cast<std::int32_t>(1 + pick(6));
        turn.on_error = pick(2) == 0 ? OnError::skip : OnError::fail;
        if (pick(4) == 0) turn.stop = {"a"};
        if (pick(8) == 0) turn.timeout = std::chrono::milliseconds(1 + pick(3));
        if (pick(8) == 0) turn.retry = {2, 0ms};
        if (pick(4) == 0 && !turn.needs.empty()) turn.tools.push_back(tool_spec("tool", turn.slots[1].name));
      }
      RunRequest request = builder.request(engine);
      request.seed = random();
      if (pick(10) == 0) request.timeout = std::chrono::milliseconds(1 + pick(4));
      std::stop_source stop;
      request.stop = stop.get_token();
      if (pick(3) == 0) {  // at the n-th event, of any kind
        request.on_event = [&stop, left = pick(30)](const Event&) mutable {
          if (left-- == 0) stop.request_stop();
        };
      }
      const RunRecord record = run_plan(request);
      (record.state == RunState::ok          ? ok
       : record.state == RunState::cancelled ? cancelled
       : record.state == RunState::timeout   ? timeouts
                                             : others) += 1;
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) threads.emplace_back(storm, seed, 1250);
  for (std::thread& thread : threads) thread.join();
  INFO(ok << " ok, " << cancelled << " cancelled, " << timeouts << " timeouts, " << others << " others");
  CHECK(ok > 300);
  CHECK(cancelled > 300);
  CHECK(timeouts > 20);
  expect_empty(*engine);
  CHECK(engine->stats().segments.bytes == 0);
  PlanBuilder builder = graph();
  answer_with(builder, 30);
  CHECK(run(builder, engine, "lockstep", 5) == run(builder, engine_of(), "full", 5));  // as if nothing had been
}

}  // namespace lockstep_test
