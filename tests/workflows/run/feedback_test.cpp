// SPDX-License-Identifier: Apache-2.0
// An attempt after a failed check is told what was wrong.
#include <catch2/catch.hpp>
#include <cstring>

#include "engine/base/utf8.h"
#include "engine/registry.h"
#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "tests/support/tiny_engine.h"
#include "workflows/run/executor.h"

namespace feedback_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

/// An agent whose output must hold a number, and which answers with these texts, one after the other.
struct Answers {
  explicit Answers(std::vector<Scripted> texts, int attempts = 3)
      : engine(std::make_shared<ScriptedEngine>([texts = std::move(texts), next = std::size_t{0}](
                                                    const std::string&) mutable { return texts.at(next++); })) {
    builder.add("a", {}).retry = {.attempts = attempts, .backoff = 0ms};
    builder.agent("a").output.pattern = "is ([0-9]+)";
  }

  RunRecord run() { return run_plan(builder.request(engine)); }
  std::int64_t ids(const std::string& text) const {
    return static_cast<std::int64_t>(engine->text().tokenizer->encode(text, SpecialTokens::recognise).size());
  }

  PlanBuilder builder;
  std::shared_ptr<ScriptedEngine> engine;
};

constexpr const char* kProblem = "the output does not match the pattern 'is ([0-9]+)'";

}  // namespace

TEST_CASE("an attempt is told of every output that failed before it") {
  Answers answers({{.text = "hm"}, {.text = "hm"}, {.text = "it is 4"}});
  const RunRecord record = answers.run();
  CHECK(record.state == RunState::ok);
  CHECK(record.agents[0].answer == "4");
  CHECK(record.agents[0].attempts == 3);
  const std::vector<std::string>& prompts = answers.engine->prompts;
  REQUIRE(prompts.size() == 3);
  const std::string end = "<|im_end|>\n<|im_start|>assistant\n", begin = "<|im_start|>user\nrole:a|why?|";
  const std::string why = std::string("\n\nAn earlier answer had an error: ") + kProblem + ".";
  CHECK(prompts[0] == begin + end);
  CHECK(prompts[1] == begin + why + end);
  CHECK(prompts[2] == begin + why + why + end);
  CHECK(record.agents[0].prompt_tokens == answers.ids(prompts[2]));
  REQUIRE(record.agents[0].slots.size() == 1);
}

TEST_CASE("the text of a feedback is that of its author, and the output and the reason in it are data") {
  Answers answers({{.text = "<|im_end|>"}, {.text = "is 1"}});
  answers.builder.plan.turns[0].retry.feedback = {
      {"No<|im_end|>: ", ""}, {"", "output"}, {", ", ""}, {"", "error"}, {"!", "", 0, true}};
  answers.builder.agent("a").output.pattern = "is <?([0-9])|<.im_start.>()";
  const RunRecord record = answers.run();
  CHECK(record.state == RunState::ok);
  const std::string& prompt = answers.engine->prompts[1];
  CHECK(prompt ==
        "<|im_start|>user\nrole:a|why?|\n\nNo<|im_end|>: <|im_end|>, the output does not match the pattern "
        "'is <?([0-9])|<.im_start.>()'!<|im_end|>\n<|im_start|>assistant\n");
  // The author's marker is one. That of the output is text.
  CHECK(record.agents[0].prompt_tokens == answers.ids(prompt) + static_cast<std::int64_t>(strlen("<|im_end|>")) - 1);
  CHECK(record.agents[0].slots.size() == 1);
}

TEST_CASE("the feedback is a message of its own where the prompt does not end with the user's") {
  Answers answers({{.text = "hm"}, {.text = "is 1"}}, 2);
  answers.builder.plan.turns[0].messages.push_back({"assistant", {{"Well: "}}});
  CHECK(answers.run().state == RunState::ok);
  CHECK(answers.engine->prompts[1].find(
            "<|im_start|>assistant\nWell: <|im_end|>\n<|im_start|>user\nAn earlier answer had an error: ") !=
        std::string::npos);
}

TEST_CASE("a long reason is cut between characters") {
  Answers answers({{.text = "hm"}, {.text = "is 1"}});
  std::string pattern = "is ([0-9]+)";
  for (int i = 0; i < 600; ++i) pattern += "(\u00e4)?";
  answers.builder.agent("a").output.pattern = pattern;
  CHECK(answers.run().state == RunState::ok);
  const std::string& prompt = answers.engine->prompts[1];
  const std::size_t begin = prompt.find("error: ") + 7, end = prompt.find(".<|im_end|>");
  CHECK(end - begin <= 1003);
  CHECK(end - begin >= 999);
  CHECK(prompt.substr(end - 3, 3) == "...");
  CHECK(utf8::is_valid(prompt));
}

TEST_CASE("what failed for another reason is tried again as it was") {
  const Scripted broken{.text = "half", .reason = FinishReason::error, .error = "boom"};
  Answers answers({{.text = "hm"}, broken, {.text = "no"}, {.text = "is 4"}}, 4);
  const RunRecord record = answers.run();
  CHECK(record.state == RunState::ok);
  const std::vector<std::string>& prompts = answers.engine->prompts;
  REQUIRE(prompts.size() == 4);
  CHECK(prompts[2] == prompts[1]);
  CHECK(prompts[3].size() > prompts[2].size());
}

TEST_CASE("tools are not run again, and their results stay in the prompt") {
  Answers answers({{.text = "hm"}, {.text = "is 4"}});
  int calls = 0;
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("count", [&](const ToolCall&) {
    return ToolResult{true, "call " + std::to_string(++calls)};
  }));
  answers.builder.tools = registry;
  PlannedTurn& turn = answers.builder.plan.turns[0];
  turn.tools.push_back(tool_spec("count", "question"));
  turn.slots.push_back({"condition_a_current", SlotSource::Kind::tool_result, 0, &full_method(), ""});
  turn.messages[0].pieces.push_back({"", "condition_a_current"});
  answers.builder.output("result", "condition_a_current");
  const RunRecord record = answers.run();
  CHECK(record.state == RunState::ok);
  CHECK(calls == 1);
  CHECK(record.outputs.at("result") == "call 1");
  CHECK(answers.engine->prompts[1].find("|call 1\n\nAn earlier") != std::string::npos);
}

TEST_CASE("the KV of the attempt before is continued up to the feedback") {
  PlanBuilder builder;
  builder.add("a", {}).retry = {.attempts = 3, .backoff = 0ms};
  builder.plan.turns[0].max_tokens = 12;
  builder.plan.reuse.method = find_method("prefix");
  builder.agent("a").output.pattern = "never (found)";
  builder.agent("a").output.required = false;
  const TinyOptions model{.context = 1024, .eos_tokens = {}, .chat_template = std::make_shared<ChatMl>()};
  RunRequest request = builder.request(tiny_engine({}, model));
  std::vector<KvRecord> prefills;
  std::vector<std::int64_t> prompt_tokens;
  request.on_event = [&](const Event& event) {
    if (const auto* prefill = std::get_if<Prefill>(&event)) prefills.push_back(prefill->kv);
    if (const auto* started = std::get_if<AgentStarted>(&event)) prompt_tokens.push_back(started->prompt_tokens);
  };
  const RunRecord record = run_plan(request);
  REQUIRE(record.state == RunState::ok);
  REQUIRE(prefills.size() == 3);
  const std::int64_t layers = model.layers;
  for (std::size_t i = 1; i < 3; ++i) {
    INFO(i << ": " << prompt_tokens[i - 1] << " then " << prompt_tokens[i] << ", computed " << prefills[i].computed);
    CHECK(prompt_tokens[i] > prompt_tokens[i - 1]);
    const auto end = static_cast<std::int64_t>(std::string("<|im_end|>\n<|im_start|>assistant\n").size());
    CHECK(prefills[i].reused >= (prompt_tokens[i - 1] - end) * layers);  // a byte is a token
  }
}

}  // namespace feedback_test
