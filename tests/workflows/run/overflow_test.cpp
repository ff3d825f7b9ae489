// SPDX-License-Identifier: Apache-2.0
// Contexts that end: results of tools that would leave no room for an answer.
#include <catch2/catch.hpp>

#include <fmt/format.h>

#include "engine/base/random.h"
#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace baton::test::overflow_test {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kQuestion = "what is the point of it all?";

std::shared_ptr<const Model> model_of(std::int32_t context) {
  return toy_model(std::make_shared<ChatMl>(), std::make_shared<ByteTokenizer>(), context);
}

/// An agent that calls `read` once for each of the results, and then answers.
struct Loop {
  Loop(std::int32_t context, std::vector<std::string> all, Overflow policy) : results(std::move(all)) {
    engine = std::make_shared<ScriptedEngine>(
        [this](const std::string& prompt) {
          if (prompt.find("Summarise this result") != std::string::npos) return Scripted{.text = summary};
          const std::size_t call = said++;
          if (call >= results.size()) return Scripted{.text = "Done."};
          return Scripted{.text = fmt::format("<tool_call>\n{{\"name\": \"read\", \"arguments\": {{\"n\": {}}}}}\n"
                                              "</tool_call>",
                                              call)};
        },
        model_of(context));
    auto registry = std::make_shared<ToolRegistry>();
    registry->add(std::make_shared<FunctionTool>("read", [this](const ToolCall&) {
      return ToolResult{true, results.at(made++), ""};
    }));
    builder.tools = registry;
    std::vector<CallableTool> tools = {{{"read", "Reads.", R"({"type": "object"})"}, {}, nullptr}};
    PlannedTurn& turn = builder.add("a", {});
    turn.calls = std::make_shared<const CallableTools>(std::move(tools), CallLimits{.max_bytes = 64 << 10}, nullptr);
    turn.overflow = policy;
    turn.max_tokens = 64;
  }

  RunRecord run() {
    RunRequest request = builder.request(engine);
    request.inputs["question"] = kQuestion;
    request.on_event = [this](const Event& event) {
      if (const auto* one = std::get_if<Warning>(&event)) warnings.push_back(one->message);
    };
    return run_plan(request);
  }

  PlanBuilder builder;
  std::shared_ptr<ScriptedEngine> engine;
  std::vector<std::string> results, warnings;
  std::string summary;
  std::size_t said = 0, made = 0;
};

std::size_t tokens_of(const GenerationRequest& request) {
  std::size_t tokens = 0;
  for (const PromptPart& part : request.prompt) tokens += part.tokens.size();
  return tokens;
}

std::string text_of_size(std::size_t bytes, char letter) { return std::string(bytes, letter); }

TEST_CASE("the newest results are cut in their middle if they would leave no room for the answer") {
  Loop loop(1024, {text_of_size(5000, 'x')}, Overflow::cut_result);
  const RunRecord record = loop.run();
  REQUIRE(record.state == RunState::ok);
  CHECK(record.agents[0].output == "Done.");
  REQUIRE(loop.engine->prompts.size() == 2);
  CHECK_THAT(loop.engine->prompts[1], Contains("bytes left out ...]"));
  CHECK(tokens_of(loop.engine->requests[1]) <= 1024 - 64);
  REQUIRE(record.agents[0].tools.size() == 1);
  CHECK(record.agents[0].tools[0].result.size() == 5000);  // the record has all of it
  CHECK(record.agents[0].tools[0].left_out > 4000);
  REQUIRE(loop.warnings.size() == 1);
  CHECK_THAT(loop.warnings[0],
             Contains("agent 'a'") && Contains("of the 5000 bytes of the result of 'read'") && Contains("1024 tokens"));
}

TEST_CASE("a context counts tokens, also where a tokenizer's ids are bytes") {
  for (const auto& [ids_per_token, is_cut] : {std::pair(1, true), std::pair(2, true), std::pair(3, false)}) {
    INFO(ids_per_token);
    Loop loop(1024, {text_of_size(2000, 'x')}, Overflow::cut_result);
    loop.engine->set_ids_per_token(ids_per_token);
    const RunRecord record = loop.run();
    REQUIRE(record.state == RunState::ok);
    CHECK((record.agents[0].tools[0].left_out > 0) == is_cut);
    const std::size_t ids = tokens_of(loop.engine->requests[0]) + tokens_of(loop.engine->requests[1]);
    const auto tokens = [&](std::size_t n) {
      return static_cast<std::int64_t>((n + ids_per_token - 1) / ids_per_token);
    };
    CHECK(std::abs(record.agents[0].prompt_tokens - tokens(ids)) <= 2);
  }
  EngineInfo info;
  info.ids_per_token = 3;
  CHECK(info.tokens_of(0) == 0);
  CHECK(info.tokens_of(1) == 1);
  CHECK(info.tokens_of(6) == 2);
}

TEST_CASE("the oldest results are left out before the newest are cut") {
  Loop loop(2048, {text_of_size(900, 'x'), text_of_size(900, 'y')}, Overflow::drop_oldest);
  const RunRecord record = loop.run();
  REQUIRE(record.state == RunState::ok);
  REQUIRE(loop.engine->prompts.size() == 3);
  CHECK(loop.engine->prompts[1].find("xxxx") != std::string::npos);
  CHECK(loop.engine->prompts[2].find("xxxx") == std::string::npos);
  CHECK_THAT(loop.engine->prompts[2], Contains("[left out: there was no room for it any more]"));
  CHECK_THAT(loop.engine->prompts[2], Contains(text_of_size(900, 'y')));
  REQUIRE(loop.warnings.size() == 1);
  CHECK_THAT(loop.warnings[0], Contains("the results of the first 1 of its 1 earlier outputs were left out"));
}

TEST_CASE("the model summarises a result for which there is no room") {
  Loop loop(1024, {text_of_size(5000, 'x')}, Overflow::summarise);
  loop.summary = "five thousand x";
  const RunRecord record = loop.run();
  REQUIRE(record.state == RunState::ok);
  CHECK(record.agents[0].output == "Done.");
  REQUIRE(loop.engine->prompts.size() == 3);
  CHECK_THAT(loop.engine->prompts[1], Contains("Summarise this result of the tool 'read'") && Contains("xxxx"));
  CHECK_THAT(loop.engine->prompts[2], Contains("[a summary of 5000 bytes]\nfive thousand x") && !Contains("xxxx"));
  CHECK(record.agents[0].tools[0].summary == "five thousand x");
  CHECK(record.agents[0].tools[0].result.size() == 5000);
  REQUIRE(loop.warnings.size() == 1);
  CHECK_THAT(loop.warnings[0], Contains("the 5000 bytes of the result of 'read' were summarised"));

  // A summary that does not fit itself is cut, and a model that writes none leaves the result to be cut.
  for (const std::string& summary : {std::string(2000, 's'), std::string()}) {
    Loop cut(1024, {text_of_size(5000, 'x')}, Overflow::summarise);
    cut.summary = summary;
    CHECK(cut.run().state == RunState::ok);
    CHECK_THAT(cut.engine->prompts.back(), Contains("bytes left out ...]"));
    CHECK(!cut.warnings.empty());
  }
}

/// A second model that summarises, and what it was asked.
struct Writer {
  Writer(Loop& loop, std::int32_t context, Scripted answer) : loop_(loop) {
    engine = std::make_shared<ScriptedEngine>([answer](const std::string&) { return answer; }, model_of(context));
    planned.model = "small";
    planned.max_tokens = kSummaryTokens;
    planned.think.enabled = false;
  }

  RunRecord run() {
    loop_.builder.plan.turns[0].summary = std::make_shared<const PlannedTurn>(planned);
    RunRequest request = loop_.builder.request(loop_.engine);
    request.engines["small"] = engine;
    request.inputs["question"] = kQuestion;
    request.seed = 7;
    request.on_event = [this](const Event& event) {
      if (const auto* one = std::get_if<Warning>(&event)) loop_.warnings.push_back(one->message);
    };
    return run_plan(request);
  }

  PlannedTurn planned;
  std::shared_ptr<ScriptedEngine> engine;

 private:
  Loop& loop_;
};

TEST_CASE("another model, or an agent with its system message, writes the summary") {
  for (const bool agent : {false, true}) {
    INFO("agent " << agent);
    Loop loop(1024, {text_of_size(5000, 'x')}, Overflow::summarise);
    Writer writer(loop, 8192, {.text = "five thousand x"});
    if (agent) {
      writer.planned.agent = "brief";
      writer.planned.messages = {{"system", {{"You keep what answers: ", ""}, {"", "question"}}}};
      writer.planned.max_tokens = 33;
      writer.planned.sampling.temperature = 0.5f;
      writer.planned.stop = {"END"};
    }
    const RunRecord record = writer.run();
    REQUIRE(record.state == RunState::ok);
    CHECK(record.agents.size() == 1);  // nobody's turn
    CHECK(record.agents[0].output == "Done.");
    REQUIRE(loop.engine->prompts.size() == 2);
    CHECK_THAT(loop.engine->prompts[1], Contains("[a summary of 5000 bytes]\nfive thousand x") && !Contains("xxxx"));
    REQUIRE(writer.engine->prompts.size() == 1);  // whose context has room for all of it
    CHECK_THAT(writer.engine->prompts[0],
               Contains("Summarise this result of the tool 'read'") && Contains(text_of_size(5000, 'x')));
    const GenerationRequest& asked = writer.engine->requests[0];
    const bool has_system = writer.engine->prompts[0].find(std::string("answers: ") + kQuestion) != std::string::npos;
    CHECK(has_system == agent);
    CHECK(asked.max_tokens == (agent ? 33 : kSummaryTokens));
    CHECK(asked.sampling.temperature == (agent ? 0.5f : 0.0f));
    CHECK(asked.stop.size() == (agent ? 1 : 0));
    CHECK(record.agents[0].tools[0].summary == "five thousand x");
    CHECK(record.agents[0].tools[0].left_out == 5000);
    REQUIRE(loop.warnings.size() == 1);
    CHECK_THAT(loop.warnings[0],
               Contains(agent ? "were summarised by agent 'brief'" : "were summarised by model 'small'"));
  }
}

TEST_CASE("a result is cut if whoever was to summarise it cannot") {
  const std::vector<std::pair<std::int32_t, Scripted>> kinds = {
      {256, {.text = "never asked"}},                                                // no room for any of it
      {8192, {.text = "half a", .reason = FinishReason::error, .error = "broken"}},  // it fails
      {8192, {.text = "", .refused = "no memory"}},                                  // it does not begin
      {8192, {.text = " \n"}},                                                       // it writes nothing
      {8192, {.text = text_of_size(4000, 's')}},                                     // its summary does not fit
  };
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    INFO("kind " << kind);
    Loop loop(1024, {text_of_size(5000, 'x')}, Overflow::summarise);
    Writer writer(loop, kinds[kind].first, kinds[kind].second);
    const RunRecord record = writer.run();
    REQUIRE(record.state == RunState::ok);
    CHECK_THAT(loop.engine->prompts.back(), Contains("bytes left out ...]"));
    CHECK(tokens_of(loop.engine->requests.back()) <= 1024 - 64);
    CHECK(loop.warnings.size() == 1);
    CHECK(writer.engine->requests.size() == (kind == 0 || kind == 2 ? 0 : 1));
  }
}

TEST_CASE("a run without the engine that is to summarise does not begin") {
  Loop loop(1024, {text_of_size(5000, 'x')}, Overflow::summarise);
  PlannedTurn writer;
  writer.model = "small";
  loop.builder.plan.turns[0].summary = std::make_shared<const PlannedTurn>(writer);
  CHECK_THROWS_WITH(loop.run(), Contains("no engine for model 'small'"));
}

TEST_CASE("with the policy `error` a turn fails whose results do not fit") {
  Loop loop(1024, {text_of_size(5000, 'x')}, Overflow::error);
  const RunRecord record = loop.run();
  CHECK(record.state == RunState::failed);
  CHECK_THAT(record.error, Contains("context"));
}

TEST_CASE("the result of a tool that runs before the prompt is cut, too, and an input never is") {
  PlanBuilder builder;
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("fetch", [](const ToolCall&) {
    return ToolResult{true, text_of_size(20'000, 'z'), ""};
  }));
  builder.tools = registry;
  PlannedTurn& turn = builder.add("a", {});
  ToolSpec tool;
  tool.tool = "fetch";
  turn.tools = {tool};
  turn.max_tokens = 64;
  turn.slots.push_back({"condition_a_current", SlotSource::Kind::tool_result, 0, &full_method(), ""});
  turn.messages[0].pieces.push_back({"", "condition_a_current"});
  auto engine =
      std::make_shared<ScriptedEngine>([](const std::string&) { return Scripted{.text = "Done."}; }, model_of(1024));
  RunRequest request = builder.request(engine);
  request.inputs["question"] = kQuestion;
  std::vector<std::string> warnings;
  request.on_event = [&](const Event& event) {
    if (const auto* one = std::get_if<Warning>(&event)) warnings.push_back(one->message);
  };
  CHECK(run_plan(request).state == RunState::ok);
  REQUIRE(engine->prompts.size() == 1);
  CHECK_THAT(engine->prompts[0], Contains(kQuestion) && Contains("bytes left out ...]"));
  REQUIRE(warnings.size() == 1);
  CHECK_THAT(warnings[0], Contains("of the 20000 bytes of 'condition_a_current' were left out"));

  request.inputs["question"] = text_of_size(3000, 'q');
  warnings.clear();
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::failed);
  CHECK_THAT(record.error, Contains("context"));
}

TEST_CASE("random loops lose no result in silence, and never the question") {
  std::uint64_t random = 1;
  for (int i = 0; i < 200; ++i) {
    const auto context = static_cast<std::int32_t>(512 + next_random(random) % 3585);
    std::vector<std::string> results;
    for (std::uint64_t n = next_random(random) % 6; n > 0; --n) {
      const std::uint64_t scale = 1ull << (next_random(random) % 17);
      results.push_back(text_of_size(next_random(random) % (scale + 1), static_cast<char>('A' + results.size())));
    }
    const auto policy = static_cast<Overflow>(next_random(random) % 4);
    INFO("loop " << i << ", context " << context << ", policy " << static_cast<int>(policy));
    Loop loop(context, results, policy);
    const RunRecord record = loop.run();
    const bool ended = record.state == RunState::ok;
    if (!ended) CHECK_THAT(record.error, Contains("context") || Contains("do not fit"));
    for (const std::string& prompt : loop.engine->prompts) {
      const bool sums_up = prompt.find("Summarise this result") != std::string::npos;
      CHECK((sums_up || prompt.find(kQuestion) != std::string::npos));
    }
    for (const GenerationRequest& request : loop.engine->requests)
      CHECK(tokens_of(request) < static_cast<std::size_t>(context));
    if (!ended) continue;
    REQUIRE(record.agents[0].tools.size() == results.size());
    const std::string& last = loop.engine->prompts.back();
    for (std::size_t n = 0; n < results.size(); ++n) {
      CHECK(record.agents[0].tools[n].result == results[n]);
      if (results[n].empty() || last.find(results[n]) != std::string::npos) continue;
      CHECK(!loop.warnings.empty());
      CHECK(policy != Overflow::error);
    }
  }
}

}  // namespace
}  // namespace baton::test::overflow_test
