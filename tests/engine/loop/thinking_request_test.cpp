// SPDX-License-Identifier: Apache-2.0
// Requests for thinking alone, and the answer behind it: the same tokens as if one request had written both.
#include <catch2/catch.hpp>

#include "engine/loop/step_engine.h"
#include "tests/support/asking.h"
#include "tests/support/tiny_engine.h"

namespace baton::test::thinking_request_test {
namespace {

GenerationRequest request_of(std::vector<PromptPart> prompt, std::int32_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.reuse.method = &prefix_method();
  request.keep_context = true;
  return request;
}

/// What the model writes behind the prompt, token by token.
std::vector<TokenId> free_tokens(StepEngine& engine, const std::vector<PromptPart>& prompt, std::int32_t count) {
  return result_of(engine, request_of(prompt, count)).get().tokens;
}

TEST_CASE("thinking ends where the model wrote the marker, and the answer goes on as without a break") {
  const auto engine = tiny_engine();
  int tried = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const std::vector<PromptPart> prompt = {{"", random_tokens(20, seed)}};
    const std::vector<TokenId> whole = free_tokens(*engine, prompt, 60);
    if (whole.size() < 40) continue;
    const Tokenizer& tokenizer = *engine->model().tokenizer;
    const auto text_to = [&](std::ptrdiff_t count) {
      return tokenizer.decode(std::vector<TokenId>(whole.begin(), whole.begin() + count), false);
    };
    // Three tokens of plain characters that the model writes there for the first time.
    std::string before, end;
    for (std::ptrdiff_t at = 6; at < 30 && end.empty(); ++at) {
      before = text_to(at);
      const std::string with = text_to(at + 3);
      const std::string marker = with.starts_with(before) ? with.substr(before.size()) : "";
      const bool plain = std::all_of(marker.begin(), marker.end(), [](char c) { return c > ' ' && c < 0x7f; });
      if (marker.size() >= 3 && plain && with.find(marker) == before.size()) end = marker;
    }
    if (end.empty()) continue;
    ++tried;
    INFO("seed " << seed);
    GenerationRequest request = request_of(prompt, 60);
    request.thinking = ThinkingMarks{"", end};
    const GenerationResult thought = result_of(*engine, request).get();
    REQUIRE(thought.error.empty());
    CHECK(thought.reason == FinishReason::stop);
    CHECK(thought.thought);
    CHECK(thought.text == before);
    REQUIRE(thought.tokens.size() >= 6);
    CHECK(std::equal(thought.tokens.begin(), thought.tokens.end(), whole.begin()));

    if (!thought.thinking_rest.empty()) continue;  // a token has a part of the marker and of the answer
    std::vector<PromptPart> behind = prompt;
    behind.push_back({"", thought.tokens});
    GenerationRequest answer = request_of(behind, static_cast<std::int32_t>(whole.size() - thought.tokens.size()));
    answer.context = thought.context;
    const GenerationResult answered = result_of(*engine, answer).get();
    CHECK(std::equal(answered.tokens.begin(), answered.tokens.end(),
                     whole.begin() + static_cast<std::ptrdiff_t>(thought.tokens.size())));
    CHECK(answered.continued_tokens >= 20);  // the prompt's KV was there
  }
  CHECK(tried >= 3);
}

TEST_CASE("a model that does not begin to think stops at once") {
  const auto engine = tiny_engine();
  GenerationRequest request = request_of({{"", random_tokens(20, 3)}}, 60);
  request.thinking = ThinkingMarks{"<think>", "</think>"};
  const GenerationResult result = result_of(*engine, request).get();
  CHECK(result.error.empty());
  CHECK(!result.thought);
  CHECK(result.tokens.empty());
  CHECK(result.text.empty());
}

TEST_CASE("a budget cuts thinking, and what follows is what follows these tokens") {
  const auto engine = tiny_engine();
  for (const std::int32_t budget : {1, 7, 30}) {
    const std::vector<PromptPart> prompt = {{"", random_tokens(20, 5)}};
    GenerationRequest request = request_of(prompt, budget);
    request.thinking = ThinkingMarks{"", "no text of the model"};
    const GenerationResult thought = result_of(*engine, request).get();
    CHECK(thought.reason == FinishReason::length);
    CHECK(thought.tokens == free_tokens(*engine, prompt, budget));
    CHECK(thought.thinking_rest == "no text of the model");

    std::vector<PromptPart> behind = prompt;
    behind.push_back({"", thought.tokens});
    behind.push_back({"", engine->model().tokenizer->encode("\n</think>\n\n", SpecialTokens::recognise)});
    GenerationRequest answer = request_of(behind, 20);
    answer.context = thought.context;
    const GenerationResult answered = result_of(*engine, answer).get();
    GenerationRequest forced = request_of(behind, 20);  // on an engine that has seen nothing
    CHECK(answered.tokens == result_of(*tiny_engine(), forced).get().tokens);
  }
}

TEST_CASE("requests that exclude thinking are refused") {
  const auto engine = tiny_engine();
  GenerationRequest request = request_of({{"", random_tokens(20, 5)}}, 10);
  request.thinking = ThinkingMarks{"<think>", "</think>"};
  request.stop = {"x"};
  CHECK_THROWS_AS(engine->submit(request), EngineError);
  request.stop.clear();
  request.thinking->end.clear();
  CHECK_THROWS_AS(engine->submit(request), EngineError);
}

}  // namespace
}  // namespace baton::test::thinking_request_test
