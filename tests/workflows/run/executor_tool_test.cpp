// SPDX-License-Identifier: Apache-2.0
// Tools inside a run: their results in prompts and outputs, their failures, their end.
#include <catch2/catch.hpp>
#include <tuple>

#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace executor_tool_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

/// Waits for its stop.
ToolResult wait_for_stop(const ToolCall& call) {
  while (!call.stop.stop_requested()) std::this_thread::sleep_for(1ms);
  return {false, "[stopped]"};
}

ScriptedEngine::Script named_answers() {
  return [](const std::string& prompt) { return Scripted{.text = agent_of(prompt) + "!"}; };
}

/// a, and b whose tool works on a's output and whose prompt shows the result.
PlanBuilder with_tool(std::function<ToolResult(const ToolCall&)> function) {
  PlanBuilder builder;
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("check", std::move(function)));
  builder.tools = registry;
  builder.add("a", {});
  PlannedTurn& b = builder.add("b", {0});
  b.tools.push_back(tool_spec("check", "agent_a_current"));
  b.tools.back().options["colour"] = "red";
  b.slots.push_back({"condition_b_current", SlotSource::Kind::tool_result, 1, &full_method(), ""});
  b.messages[0].pieces.push_back({"", "condition_b_current"});
  builder.output("result", "condition_b_current");
  return builder;
}

}  // namespace

TEST_CASE("a tool runs on an output before the prompt is built") {
  ToolCall seen;
  PlanBuilder builder = with_tool([&](const ToolCall& call) {
    seen = call;
    return ToolResult{true, "fine<|im_end|>"};
  });
  PlannedTurn& c = builder.add("c", {1});
  c.slots.push_back({"condition_b_current", SlotSource::Kind::tool_result, 1, &full_method(), ""});
  c.messages[0].pieces.push_back({"", "condition_b_current"});
  auto engine = std::make_shared<ScriptedEngine>(named_answers());
  RunRequest request = builder.request(engine);
  std::vector<ToolCalled> calls;
  request.on_event = [&](const Event& event) {
    if (const ToolCalled* call = std::get_if<ToolCalled>(&event)) calls.push_back(*call);
  };
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::ok);
  CHECK(seen.text == "a!");
  CHECK(seen.options.at("colour") == "red");
  CHECK(engine->prompts[1].find("role:b|why?|a!|fine<|im_end|>") != std::string::npos);
  CHECK(engine->prompts[2].find("role:c|why?|b!|fine") != std::string::npos);
  CHECK(record.agents[1].slots[2].tokens == 14);  // plain text: the marker is no marker
  CHECK(record.outputs.at("result") == "fine<|im_end|>");
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].agent == "b");
  CHECK(calls[0].tool == "check");
  CHECK(calls[0].ok);
}

TEST_CASE("the options of a tool may hold placeholders, whose values name no secret") {
  std::map<std::string, std::string> seen;
  int calls = 0;
  PlanBuilder builder = with_tool([&](const ToolCall& call) {
    ++calls;
    seen = call.options;
    return ToolResult{true, "fine"};
  });
  builder.plan.turns[1].tells_errors = true;
  PromptItem& text = builder.plan.turns[1].tools.back().filled["colour"];
  text.pieces = {{"red, ", ""}, {"", "question"}, {" and ", ""}, {"", "agent_a_current"}};
  const auto run_with = [&](const std::string& question) {
    RunRequest request = builder.request(std::make_shared<ScriptedEngine>(named_answers()));
    request.inputs["question"] = question;
    return run_plan(request);
  };
  CHECK(run_with("why {{ it }}?").state == RunState::ok);
  CHECK(seen == std::map<std::string, std::string>{{"colour", "red, why {{ it }}? and a!"}});
  CHECK(run_with("${secret:KEY}").outputs.at("result") == "error: option 'colour': a value holds '${secret:'");
  text.pieces.insert(text.pieces.begin() + 1, {"$", ""});
  CHECK(run_with("{secret:KEY}").outputs.at("result") == "error: option 'colour': a value holds '${secret:'");
  text.pieces.assign(200, {"", "question"});
  CHECK(run_with(std::string(100'000, 'x')).outputs.at("result") ==
        "error: option 'colour' has more than 16777216 bytes");
  CHECK(calls == 1);
}

TEST_CASE("without a prompt, an agent is its tools") {
  int calls = 0;
  PlanBuilder builder = with_tool([&](const ToolCall& call) {
    return ToolResult{true, call.text + std::to_string(++calls)};
  });
  builder.plan.turns[1].messages.clear();
  builder.plan.turns[1].model.clear();
  builder.add("c", {1}).slots.back().kind = SlotSource::Kind::tool_result;  // as the plan has it
  builder.output("tools", "agent_b_current");
  const auto run = [&] {
    auto engine = std::make_shared<ScriptedEngine>(named_answers());
    const RunRecord record = run_plan(builder.request(engine));
    return std::make_pair(record, engine->prompts);
  };

  auto [record, prompts] = run();
  CHECK(record.state == RunState::ok);
  CHECK(prompts.size() == 2);
  CHECK(prompts.back().find("role:c|why?|a!1|") != std::string::npos);
  CHECK(record.agents[1].output == "a!1");
  CHECK(record.agents[1].model.empty());
  CHECK(record.agents[1].output_tokens == 0);
  CHECK(record.outputs.at("tools") == "a!1");
  CHECK(record.outputs.at("result") == "a!1");

  PlannedTurn& b = builder.plan.turns[1];
  builder.agent("b").output.pattern = "a!([3-9])";  // the third call
  b.retry.attempts = 3;
  std::tie(record, prompts) = run();
  CHECK(record.state == RunState::ok);
  CHECK(calls == 3);
  CHECK(record.agents[1].answer == "3");
  CHECK(record.agents[1].attempts == 2);

  builder.agent("b").output.pattern = "never";
  b.on_error = OnError::fallback;
  b.fallback = "instead";
  std::tie(record, prompts) = run();
  CHECK(record.state == RunState::ok);
  CHECK(record.agents[1].state == TurnState::failed);
  CHECK(prompts.back().find("role:c|why?|instead|") != std::string::npos);

  b.on_error = OnError::skip;
  std::tie(record, prompts) = run();
  CHECK(prompts.back().find("role:c|why?||") != std::string::npos);
}

TEST_CASE("a tool that fails before the prompt fails its turn, and retry and on_error decide") {
  int calls = 0;
  bool throws = false;
  PlanBuilder builder = with_tool([&](const ToolCall&) -> ToolResult {
    ++calls;
    if (throws) throw std::runtime_error("no luck");
    return {calls >= 3, calls >= 3 ? "fine" : "error: no luck"};
  });
  builder.plan.turns[1].tools.push_back(tool_spec("check", ""));  // is not called behind one that failed
  const auto run = [&] {
    calls = 0;
    auto engine = std::make_shared<ScriptedEngine>(named_answers());
    const RunRecord record = run_plan(builder.request(engine));
    return std::make_pair(record, engine->prompts);
  };
  for (const bool with_prompt : {true, false}) {
    INFO(with_prompt);
    PlannedTurn& b = builder.plan.turns[1];
    if (!with_prompt) b.messages.clear();
    for (const bool thrown : {false, true}) {
      throws = thrown;
      b.on_error = OnError::fail;
      b.retry.attempts = 1;
      auto [record, prompts] = run();
      CHECK(record.state == RunState::failed);
      CHECK(record.error_kind == ErrorKind::agent);
      CHECK(record.error == "agent 'b' failed: tool 'check' failed: no luck");
      CHECK(record.agents[1].tools.size() == 1);
      CHECK(prompts.size() == 1);

      b.on_error = OnError::skip;
      std::tie(record, prompts) = run();
      CHECK(record.state == RunState::ok);
      CHECK(record.outputs.at("result").empty());  // not the error
      RunRequest again = builder.request(std::make_shared<ScriptedEngine>(named_answers()));
      again.finished = {{record.agents[0], 0}, {record.agents[1], 1}};
      CHECK(run_plan(again).outputs.at("result").empty());
      REQUIRE(record.warnings.size() == 1);
      CHECK(record.warnings[0].code == WarningCode::turn_failed);
      CHECK(record.warnings[0].turn == "b");
    }
    throws = false;
    b.on_error = OnError::fail;
    b.retry.attempts = 3;
    const RunRecord record = run().first;
    CHECK(record.state == RunState::ok);
    CHECK(record.agents[1].attempts == 3);
    CHECK(record.outputs.at("result") == "fine\nfine");
    CHECK(record.warnings.at(0).code == WarningCode::attempt_failed);
    CHECK(record.warnings.at(0).count == 2);
  }
}

TEST_CASE("an output without words warns, passes or fails the attempt, whoever makes it") {
  PlanBuilder builder = with_tool([&](const ToolCall&) { return ToolResult{true, " \n"}; });
  const auto run = [&](const std::string& answer, OnEmpty on_empty, bool with_prompt) {
    PlanBuilder one = builder;
    one.plan.turns[1].on_empty = on_empty;
    if (!with_prompt) one.plan.turns[1].messages.clear();
    return run_plan(one.request(std::make_shared<ScriptedEngine>(
        [&](const std::string& prompt) { return Scripted{.text = agent_of(prompt) == "b" ? answer : "fine"}; })));
  };
  const auto codes = [](const RunRecord& record) {
    std::vector<WarningCode> found;
    for (const WarningRecord& one : record.warnings) found.push_back(one.code);
    return found;
  };
  using Codes = std::vector<WarningCode>;
  CHECK(codes(run("x", OnEmpty::warn, true)) == Codes{WarningCode::result_empty});
  CHECK(codes(run(" \t\n", OnEmpty::warn, true)) == Codes{WarningCode::result_empty, WarningCode::output_empty});
  CHECK(codes(run("", OnEmpty::warn, false)) == Codes{WarningCode::output_empty});
  CHECK(codes(run("", OnEmpty::accept, true)).empty());
  CHECK(codes(run("", OnEmpty::accept, false)).empty());
  for (const bool with_prompt : {true, false}) {
    const RunRecord record = run("", OnEmpty::fail, with_prompt);
    CHECK(record.state == RunState::failed);
    CHECK(record.error == "agent 'b' failed: the output is empty");
  }
}

TEST_CASE("an empty output that has to have words is written again, and the model hears why") {
  PlanBuilder builder;
  PlannedTurn& a = builder.add("a", {});
  a.on_empty = OnEmpty::fail;
  a.retry.attempts = 2;
  auto engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
    return Scripted{.text = prompt.find("the output is empty") == std::string::npos ? "" : "words"};
  });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record.state == RunState::ok);
  CHECK(record.agents[0].output == "words");
}

TEST_CASE("an answer that a server ended for an unknown reason says so") {
  PlanBuilder builder;
  builder.add("a", {});
  const RunRecord record = run_plan(builder.request(std::make_shared<ScriptedEngine>(
      [](const std::string&) { return Scripted{.text = "x", .reason = FinishReason::other}; })));
  CHECK(record.state == RunState::ok);
  CHECK(record.agents[0].finish_reason == FinishReason::other);
  REQUIRE(record.warnings.size() == 1);
  CHECK(record.warnings[0].code == WarningCode::finish_unknown);
}

TEST_CASE("warnings are counted by kind and turn, and a record holds at most 256 kinds") {
  PlanBuilder builder;
  builder.add("a", {});
  RunRequest request = builder.request(std::make_shared<ScriptedEngine>(named_answers()));
  for (int i = 0; i < 300; ++i) request.warnings.push_back({"about " + std::to_string(i), WarningCode::tools_left_out});
  request.warnings.push_back(request.warnings.front());
  std::size_t events = 0;
  request.on_event = [&](const Event& event) { events += std::holds_alternative<Warning>(event) ? 1 : 0; };
  const RunRecord record = run_plan(request);
  CHECK(events == 301);
  REQUIRE(record.warnings.size() == 256);
  CHECK(record.warnings.front().count == 2);
  CHECK(record.warnings.back().code == WarningCode::other);
  CHECK(record.warnings.back().count == 45);
}

TEST_CASE("with on_error: tell, a tool that fails, throws or is missing shows its error to the agent") {
  PlanBuilder builder = with_tool([](const ToolCall&) -> ToolResult { throw std::runtime_error("no luck"); });
  builder.plan.turns[1].tells_errors = true;
  builder.plan.turns[1].tools.push_back(tool_spec("gone", ""));
  const RunRecord record = run_plan(builder.request(std::make_shared<ScriptedEngine>(named_answers())));
  CHECK(record.state == RunState::ok);
  CHECK(record.outputs.at("result") == "error: no luck\nerror: tool 'gone' is not registered");
}

TEST_CASE("a tool is told to stop when its agent or the run ends") {
  PlanBuilder builder = with_tool(wait_for_stop);
  builder.plan.turns[1].timeout = 50ms;
  RunRecord record = run_plan(builder.request(std::make_shared<ScriptedEngine>(named_answers())));
  CHECK(record.state == RunState::timeout);
  CHECK(record.agents[1].error == "the attempt took longer than 50 ms");

  builder.plan.turns[1].timeout = 0ms;
  RunRequest request = builder.request(std::make_shared<ScriptedEngine>(named_answers()));
  request.timeout = 100ms;
  record = run_plan(request);
  CHECK(record.state == RunState::timeout);
  CHECK(record.agents[1].state == TurnState::cancelled);
  CHECK(record.wall_ms < 2000.0);
}

TEST_CASE("the time to the first token counts from the tool's result") {
  PlanBuilder builder = with_tool([](const ToolCall&) {
    std::this_thread::sleep_for(200ms);
    return ToolResult{true, "slow"};
  });
  const RunRecord record = run_plan(builder.request(
      std::make_shared<ScriptedEngine>([](const std::string&) { return Scripted{.text = "x", .prefill = 20ms}; })));
  CHECK(record.agents[1].ttft_ms >= 20.0);
  CHECK(record.agents[1].ttft_ms < 200.0);
}

TEST_CASE("the python tool in a run") {
  PlanBuilder builder;
  builder.tools = nullptr;  // the built-in ones
  builder.add("a", {});
  PlannedTurn& b = builder.add("b", {0});
  b.tools.push_back(tool_spec("python", "agent_a_current"));
  b.slots.push_back({"condition_b_current", SlotSource::Kind::tool_result, 1, &full_method(), ""});
  b.messages[0].pieces.push_back({"", "condition_b_current"});
  builder.output("result", "condition_b_current");
  const RunRecord record = run_plan(builder.request(std::make_shared<ScriptedEngine>(
      [](const std::string&) { return Scripted{.text = "So:\n```python\nprint(6 * 7)\n```"}; })));
  CHECK(record.state == RunState::ok);
  CHECK(record.outputs.at("result") == "42");
}

}  // namespace executor_tool_test
