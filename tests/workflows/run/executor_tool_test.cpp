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

TEST_CASE("a tool that fails, throws or is missing shows its error to the agent") {
  PlanBuilder builder = with_tool([](const ToolCall&) -> ToolResult { throw std::runtime_error("no luck"); });
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
