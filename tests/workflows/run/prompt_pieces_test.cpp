// SPDX-License-Identifier: Apache-2.0
// Prompts of runs with tokenizers that put a blank before a text: whatever a prompt is made of, its ids stand for the
// text that the same run gives a tokenizer of bytes.
#include <catch2/catch.hpp>
#include <optional>
#include <utility>

#include "tests/support/function_tool.h"
#include "tests/support/golden_files.h"
#include "tests/support/plans.h"
#include "workflows/run/early_turns.h"
#include "workflows/run/executor.h"

namespace prompt_pieces_test {

using namespace baton;
using namespace baton::test;

namespace {

using TokenizerPtr = std::shared_ptr<const Tokenizer>;

/// A blank before each part behind a special token; the golden's own rule is a blank before the text.
TokenizerPtr sentence_piece(bool each_part) {
  Json json = golden_json("tokenizers/sp_metaspace.json");
  if (each_part) json["pre_tokenizer"]["prepend_scheme"] = "always";
  return Tokenizer::parse(json.dump(), "sentencepiece");
}

/// Answers with the texts, one after the other, as a model writes them behind its prompt.
std::shared_ptr<ScriptedEngine> answering(const TokenizerPtr& tokenizer, std::vector<std::string> texts) {
  return std::make_shared<ScriptedEngine>(
      [tokenizer, texts = std::move(texts), next = std::size_t{0}](const std::string&) mutable {
        Scripted scripted{texts.at(next++)};
        scripted.tokens = tokenizer->encode_piece(scripted.text, SpecialTokens::as_text, tokenizer->start_inside());
        return scripted;
      },
      toy_model(std::make_shared<ChatMl>(), tokenizer));
}

/// Two agents, of whom one reads the other and has a further attempt.
std::vector<std::string> team_prompts(const TokenizerPtr& tokenizer) {
  const auto engine = answering(tokenizer, {"a plan", "no", "The answer is 42"});
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0}).retry = {.attempts = 2, .backoff = {}};
  builder.agent("b").output.pattern = "is ([0-9]+)";
  RunRequest request = builder.request(engine);
  request.inputs["question"] = "Tom has 12 apples";
  CHECK(run_plan(request).state == RunState::ok);
  return engine->prompts;
}

/// An agent that calls a tool.
std::vector<std::string> caller_prompts(const TokenizerPtr& tokenizer) {
  const std::string call = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>";
  const auto engine = answering(tokenizer, {call, call, "Sunny."});
  PlanBuilder builder;
  const auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("weather", [](const ToolCall&) {
    return ToolResult{true, "sun, and wind from the west", ""};
  }));
  builder.tools = registry;
  std::vector<CallableTool> tools = {{{"weather", "Weather.", "{}"}, {}, nullptr}};
  CallLimits limits;
  limits.repeat = true;
  builder.add("a", {}).calls = std::make_shared<const CallableTools>(std::move(tools), limits, nullptr);
  CHECK(run_plan(builder.request(engine)).state == RunState::ok);
  return engine->prompts;
}

/// A conversation of three runs, without the first one from some length on.
std::vector<std::string> session_prompts(const TokenizerPtr& tokenizer, std::optional<int> remember) {
  const auto engine = answering(tokenizer, {"Hello Ada", "a second answer", "a third one"});
  SessionMemory memory;
  for (const char* question : {"My name is Ada", "and then?", "Who am I?"}) {
    PlanBuilder builder;
    builder.add("a", {}).remember = remember;
    RunRequest request = builder.request(engine);
    request.inputs["question"] = question;
    request.memory = memory;
    request.on_memory = [&](const SessionMemory* now) { memory = *now; };
    CHECK(run_plan(request).state == RunState::ok);
  }
  return engine->prompts;
}

}  // namespace

TEST_CASE("no piece of a prompt gets a blank that the text does not have", "[executor]") {
  const TokenizerPtr bytes = std::make_shared<const ByteTokenizer>();
  for (const bool each_part : {false, true}) {
    CAPTURE(each_part);
    const TokenizerPtr tokenizer = sentence_piece(each_part);
    CHECK(team_prompts(tokenizer) == team_prompts(bytes));
    CHECK(caller_prompts(tokenizer) == caller_prompts(bytes));
    CHECK(session_prompts(tokenizer, std::nullopt) == session_prompts(bytes, std::nullopt));
    CHECK(session_prompts(tokenizer, 1) == session_prompts(bytes, 1));
  }
  REQUIRE(team_prompts(bytes).size() == 3);
  REQUIRE(caller_prompts(bytes).size() == 3);
}

TEST_CASE("a frame whose inputs are known makes the same prompt as one whose values come at the end", "[executor]") {
  const TokenizerPtr tokenizer = Tokenizer::parse(golden_text("tokenizers/sp_normalizer.json"), "phi");
  const auto chat = ChatTemplate::parse(
      "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}<|assistant|>\n", "test");
  const auto model = toy_model(chat, tokenizer);
  PlannedTurn turn;
  turn.messages = {{"user", {{"", "x"}, {"", "y"}, {"\n"}, {"", "z"}, {"\n", "", true}, {"", "y"}}}};
  for (const char* name : {"x", "y"}) turn.slots.push_back({name, SlotSource::Kind::input, -1, &full_method(), ""});
  turn.slots.push_back({"z", SlotSource::Kind::agent_output, 0, &full_method(), ""});
  const char* const values[] = {"", "Hello", " two", "\n"};
  for (const std::string x : values) {
    for (const std::string y : values) {
      for (const std::string z : values) {
        CAPTURE(x, y, z);
        const SlotValue value = [&](const std::string& name, PieceStart start) {
          return tokenizer->encode_piece(name == "x" ? x : name == "y" ? y : z, SpecialTokens::as_text, start);
        };
        const auto ids = [](const std::vector<PromptPart>& parts) {
          std::vector<TokenId> all;
          for (const PromptPart& part : parts) all.insert(all.end(), part.tokens.begin(), part.tokens.end());
          return all;
        };
        const std::vector<TokenId> made = ids(build_prompt(*model, turn.messages, value));
        CHECK(ids(fill_frame(*model, *make_frame(turn, *model, {{"x", x}, {"y", y}}, nullptr, {}), value)) == made);
        const std::string text = "<|user|>\n" + x + y + "\n" + z + "\n" + y + "<|end|>\n<|assistant|>\n";
        CHECK(tokenizer->decode(made, false) ==
              tokenizer->decode(tokenizer->encode(text, SpecialTokens::recognise), false));
      }
    }
  }
}

}  // namespace prompt_pieces_test
