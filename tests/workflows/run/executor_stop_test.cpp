// SPDX-License-Identifier: Apache-2.0
// Stops at any moment leave nothing behind: no open request, no later callback, every turn with a state.
#include <atomic>
#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "engine/base/errors.h"
#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace executor_stop_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

PlanBuilder two_layers() {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {});
  builder.add("c", {0, 1}).retry = {.attempts = 2, .backoff = 1ms};
  builder.add("d", {0, 1});
  builder.add("judge", {2, 3}).decides = true;
  builder.output("answer", "agent_judge_current");
  return builder;
}

ScriptedEngine::Script slow_answers() {
  return [first = true](const std::string& prompt) mutable {
    if (agent_of(prompt) == "c" && std::exchange(first, false)) {
      return Scripted{.text = "", .reason = FinishReason::error, .error = "once"};
    }
    return Scripted{.text = agent_of(prompt) + " says something", .prefill = 300us, .per_token = 60us};
  };
}

/// Works until it is stopped, for ten seconds at most.
void work_until(const std::stop_token& stop) {
  for (int i = 0; i < 10'000 && !stop.stop_requested(); ++i) std::this_thread::sleep_for(1ms);
  throw Interrupted();
}

struct EndlessTemplate : ChatMl {
  std::string render(const std::vector<ChatMessage>&, const ChatOptions&, const std::stop_token& stop) const override {
    work_until(stop);
    return {};
  }
};

struct EndlessTokenizer : ByteTokenizer {
  std::vector<TokenId> encode_piece(std::string_view text, SpecialTokens special, PieceStart start,
                                    const std::stop_token& stop) const override {
    if (special == SpecialTokens::as_text && text == "why?") work_until(stop);
    return ByteTokenizer::encode_piece(text, special, start, stop);
  }
};

}  // namespace

TEST_CASE("timeouts and stops reach the rendering and the tokenizing of prompts") {
  const auto answer = [](const std::string&) { return Scripted{.text = "yes"}; };
  const auto slow_template = toy_model(std::make_shared<EndlessTemplate>());
  const auto slow_tokenizer = toy_model(std::make_shared<ChatMl>(), std::make_shared<EndlessTokenizer>());
  for (const auto& model : {slow_template, slow_tokenizer}) {
    auto engine = std::make_shared<ScriptedEngine>(answer, model);
    for (const std::string way : {"turn", "run", "stop"}) {
      CAPTURE(way);
      PlanBuilder builder;
      builder.add("a", {}).timeout = way == "turn" ? 30ms : 0ms;
      builder.output("answer", "agent_a_current");
      RunRequest request = builder.request(engine);
      std::stop_source source;
      request.stop = source.get_token();
      if (way == "run") request.timeout = 30ms;
      std::jthread stopper([&] {
        std::this_thread::sleep_for(30ms);
        if (way == "stop") source.request_stop();
      });
      const auto begin = std::chrono::steady_clock::now();
      const RunRecord record = run_plan(request);
      CHECK(std::chrono::steady_clock::now() - begin < 5s);
      CHECK(record.state == (way == "stop" ? RunState::cancelled : RunState::timeout));
      CHECK(engine->open() == 0);
    }
  }
}

TEST_CASE("a stop keeps what there is") {
  PlanBuilder builder = two_layers();
  auto engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
    return Scripted{.text = std::string(1000, 'x'), .per_token = agent_of(prompt) == "a" ? 0ms : 2ms};
  });
  RunRequest request = builder.request(engine);
  builder.output("b", "agent_b_current");
  std::stop_source source;
  request = builder.request(engine);
  request.stop = source.get_token();
  int tokens = 0;
  request.on_event = [&](const Event& event) {
    const Token* token = std::get_if<Token>(&event);
    if (token != nullptr && token->agent == "b" && ++tokens == 20) source.request_stop();  // from within the callback
  };
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::cancelled);
  CHECK(record.agents[0].state == TurnState::ok);
  CHECK(record.agents[1].state == TurnState::cancelled);
  CHECK(record.agents[1].finish_reason == FinishReason::cancelled);
  CHECK(record.agents[1].output.size() >= 20);
  CHECK(record.outputs.at("b") == record.agents[1].output);
  CHECK(record.agents[2].state == TurnState::skipped);
  CHECK(engine->open() == 0);
}

TEST_CASE("a run that was stopped before it began") {
  PlanBuilder builder = two_layers();
  auto engine = std::make_shared<ScriptedEngine>(slow_answers());
  RunRequest request = builder.request(engine);
  std::stop_source source;
  source.request_stop();
  request.stop = source.get_token();
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::cancelled);
  for (const AgentRecord& agent : record.agents)
    CHECK((agent.state == TurnState::skipped || agent.state == TurnState::cancelled));
  CHECK(engine->open() == 0);
}

TEST_CASE("stops at random moments") {
  std::mt19937 random(20240607);
  std::uniform_int_distribution<int> moment(0, 9000);
  int cancelled = 0, complete = 0;
  for (int i = 0; i < 400; ++i) {
    PlanBuilder builder = two_layers();
    auto engine = std::make_shared<ScriptedEngine>(slow_answers());
    RunRequest request = builder.request(engine);
    std::stop_source source;
    request.stop = source.get_token();
    std::atomic<bool> returned = false;
    std::atomic<int> late = 0, finished = 0;
    request.on_event = [&](const Event& event) {
      late += returned ? 1 : 0;
      finished += std::holds_alternative<RunFinished>(event) ? 1 : 0;
    };
    const auto delay = std::chrono::microseconds(moment(random));
    std::jthread stopper([&] {
      std::this_thread::sleep_for(delay);
      source.request_stop();
    });
    const RunRecord record = run_plan(request);
    returned = true;
    CHECK((record.state == RunState::cancelled || record.state == RunState::ok));
    (record.state == RunState::ok ? complete : cancelled) += 1;
    REQUIRE(record.agents.size() == 5);
    for (const AgentRecord& agent : record.agents) {
      if (record.state == RunState::ok) CHECK(agent.state == TurnState::ok);
    }
    CHECK(finished == 1);
    CHECK(engine->open() == 0);
    stopper.join();
    engine.reset();
    request.engines.clear();
    CHECK(late == 0);
  }
  CHECK(cancelled > 50);
  INFO(complete);
}

TEST_CASE("runs that end while their stop comes from many threads") {
  auto engine = std::make_shared<ScriptedEngine>(slow_answers());
  std::stop_source source;
  std::vector<std::jthread> threads;
  std::atomic<int> done = 0;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&] {
      PlanBuilder builder = two_layers();
      RunRequest request = builder.request(engine);
      request.stop = source.get_token();
      const RunRecord record = run_plan(request);
      done += record.state == RunState::cancelled || record.state == RunState::ok ? 1 : 0;
    });
  }
  std::this_thread::sleep_for(4ms);
  std::vector<std::jthread> stoppers;
  for (int t = 0; t < 4; ++t) stoppers.emplace_back([&] { source.request_stop(); });
  stoppers.clear();
  threads.clear();
  CHECK(done == 16);
  CHECK(engine->open() == 0);
}

}  // namespace executor_stop_test
