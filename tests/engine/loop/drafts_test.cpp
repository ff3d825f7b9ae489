// SPDX-License-Identifier: Apache-2.0
// Answers with drafts are those without, token for token.
#include "engine/loop/speculation.h"
#include "engine/registry.h"
#include "engine/reuse/rectify/rectify.h"

#include <catch2/catch.hpp>

#include "engine/cpu/cpu.h"
#include "engine/loop/sequence.h"
#include "engine/loop/step_engine.h"
#include "tests/support/asking.h"
#include "tests/support/tiny_model.h"

namespace drafts_test {

using namespace baton;
using namespace baton::test;

namespace {

std::shared_ptr<StepEngine> engine_with(std::int32_t max_draft) {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, {});
  LocalEngineOptions options;
  options.max_draft = max_draft;
  options.draft_always = true;
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), options);
}

/// A prompt that repeats itself, so that drafts are found from the first token on.
std::vector<PromptPart> repeating(std::uint64_t seed) {
  std::vector<TokenId> tokens = random_tokens(9, seed);
  for (int i = 0; i < 3; ++i) tokens.insert(tokens.end(), tokens.begin(), tokens.begin() + 9);
  return {{"", tokens, nullptr, 0}};
}

GenerationRequest request(std::uint64_t seed, float temperature, std::int32_t max_tokens = 60) {
  GenerationRequest request;
  request.prompt = repeating(seed);
  request.max_tokens = max_tokens;
  request.sampling.temperature = temperature;
  request.sampling.seed = seed;
  return request;
}

GenerationResult answer(InferenceEngine& engine, GenerationRequest request) {
  std::promise<GenerationResult> promise;
  request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
  engine.submit(std::move(request));
  GenerationResult result = promise.get_future().get();
  REQUIRE(result.error.empty());
  return result;
}

}  // namespace

TEST_CASE("Answers with drafts are those without", "[drafts]") {
  const auto plain = engine_with(0);
  const auto drafting = engine_with(11);
  const float temperature = GENERATE(0.0f, 0.7f);
  std::int64_t accepted = 0, dropped = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    GenerationRequest one = request(seed, temperature);
    if (seed % 3 == 0) one.sampling.repetition_penalty = 1.3f;
    if (seed % 4 == 0) one.max_tokens = static_cast<std::int32_t>(seed);
    const GenerationResult expected = answer(*plain, one);
    const GenerationResult found = answer(*drafting, one);
    CHECK(found.tokens == expected.tokens);
    CHECK(found.text == expected.text);
    CHECK(found.reason == expected.reason);
    CHECK(expected.drafted_tokens == 0);
    accepted += found.accepted_tokens;
    dropped += found.drafted_tokens - found.accepted_tokens;
  }
  CHECK(accepted > 20);
  CHECK(dropped > 20);
}

TEST_CASE("Drafts of several answers share steps", "[drafts]") {
  const auto plain = engine_with(0);
  const auto drafting = engine_with(11);
  std::vector<std::future<Run>> runs;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) runs.push_back(start(*drafting, request(seed, 0.5f)));
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Run expected = start(*plain, request(seed, 0.5f)).get();
    const Run found = runs[seed - 1].get();
    CHECK(found.result.tokens == expected.result.tokens);
    CHECK(same(found, expected));  // bit for bit, and none from dropped rows
  }
}

TEST_CASE("An answer with drafts is handed on with the KV of one without", "[drafts]") {
  std::vector<std::vector<float>> first;
  for (const std::int32_t max_draft : {0, 11}) {
    const auto engine = engine_with(max_draft);
    ReuseOptions reuse;
    reuse.method = find_method("direct");
    reuse.min_tokens = 1;
    reuse.record = true;
    GenerationRequest author = request(5, 0.0f, 40);
    author.reuse = reuse;
    author.output_readers = 1;
    const GenerationResult written = answer(*engine, author);
    REQUIRE(written.output);
    CHECK((written.accepted_tokens > 0) == (max_draft > 0));
    const Run read = ask(*engine, {text(7, 3), {"answer", written.tokens, written.output, 0}, text(3, 4)}, reuse);
    first.push_back(read.logits[0]);
  }
  CHECK(first[0] == first[1]);
}

TEST_CASE("A stop string inside a draft ends the answer where it ends without drafts", "[drafts]") {
  const auto plain = engine_with(0);
  const auto drafting = engine_with(11);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const GenerationResult whole = answer(*plain, request(seed, 0.0f));
    if (whole.text.size() < 24) continue;
    GenerationRequest stopped = request(seed, 0.0f);
    stopped.stop = {whole.text.substr(whole.text.size() / 2, 3)};
    const GenerationResult expected = answer(*plain, stopped);
    const GenerationResult found = answer(*drafting, stopped);
    CHECK(found.reason == expected.reason);
    CHECK(found.text == expected.text);
    CHECK(found.tokens == expected.tokens);
  }
}

TEST_CASE("A draft whose step failed is not counted", "[drafts]") {
  const auto backend = make_cpu_backend(1);
  const auto model = make_tiny_model(*backend, {});
  Sequence sequence(1, request(1, 0.0f), {}, *model, nullptr);
  const std::vector<TokenId> tokens = {1, 2, 3};
  for (int step = 0; step < 2; ++step) sequence.speculation.set_draft({tokens, 4}, 3);  // the step is run again
  CHECK(sequence.result().drafted_tokens == 0);
}

TEST_CASE("Recorded attention is not touched by drafts", "[drafts]") {
  const auto drafting = engine_with(11);
  GenerationRequest author = request(5, 0.0f, 40);
  author.reuse.method = find_method("rectify");
  own<RectifyOptions>(author.reuse).selection = SelectionOptions::by_author();
  author.reuse.range = {0, 1, 2};
  author.reuse.record = true;
  author.output_readers = 1;
  CHECK(answer(*drafting, author).drafted_tokens == 0);
}

TEST_CASE("A forced answer that is longer than the context ends where the context ends", "[drafts]") {
  std::vector<std::vector<TokenId>> found;
  for (const std::int32_t max_draft : {0, 11}) {
    const auto engine = engine_with(max_draft);
    GenerationRequest long_one = request(3, 0.0f);
    long_one.prompt = {{"", random_tokens(470, 3), nullptr, 0}};  // of a context of 512
    long_one.forced = random_tokens(200, 4);
    const GenerationResult result = answer(*engine, long_one);
    CHECK(result.reason == FinishReason::length);
    found.push_back(result.tokens);
  }
  CHECK(found[0].size() == 42);
  CHECK(found[0] == found[1]);
}

TEST_CASE("A callback that throws inside a draft leaves no wrong KV for those who follow", "[drafts]") {
  const auto drafting = engine_with(11);
  const auto plain = engine_with(0);
  for (int at = 1; at < 24; ++at) {
    GenerationRequest failing = request(static_cast<std::uint64_t>(at), 0.0f);
    failing.callbacks.on_token = [at, count = 0](TokenId, const std::string&) mutable {
      if (++count == at) throw std::runtime_error("not now");
    };
    std::promise<GenerationResult> over;
    failing.callbacks.on_finished = [&](GenerationResult result) { over.set_value(std::move(result)); };
    GenerationRequest follower = request(static_cast<std::uint64_t>(at), 0.0f);
    follower.reuse.method = find_method("prefix");
    failing.reuse.method = find_method("prefix");
    drafting->submit(failing);
    auto second = start(*drafting, follower), third = start(*drafting, follower);
    const GenerationResult expected = answer(*plain, request(static_cast<std::uint64_t>(at), 0.0f));
    const bool reached = static_cast<int>(expected.tokens.size()) >= at;
    CHECK(over.get_future().get().error == (reached ? "not now" : ""));
    CHECK(second.get().result.tokens == expected.tokens);
    CHECK(third.get().result.tokens == expected.tokens);
  }
}

}  // namespace drafts_test
