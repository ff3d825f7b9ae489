// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_engine.h"

#include <catch2/catch.hpp>
#include <future>
#include <random>

#include "tests/support/tiny_engine.h"

namespace step_engine_test {

using namespace baton;
using namespace baton::test;

namespace {

std::vector<PromptPart> prompt_of(std::vector<TokenId> tokens) { return {{"", std::move(tokens)}}; }

/// Starts a request whose result comes as a future.
std::future<GenerationResult> start(InferenceEngine& engine, GenerationRequest request, RequestId* id = nullptr) {
  auto promise = std::make_shared<std::promise<GenerationResult>>();
  auto future = promise->get_future();
  request.callbacks.on_finished = [promise](GenerationResult result) { promise->set_value(std::move(result)); };
  const RequestId given = engine.submit(std::move(request));
  if (id != nullptr) *id = given;
  return future;
}

GenerationRequest request_for(std::size_t length, std::uint64_t seed, std::int32_t max_tokens = 20) {
  GenerationRequest request;
  request.prompt = prompt_of(random_tokens(length, seed));
  request.max_tokens = max_tokens;
  return request;
}

}  // namespace

TEST_CASE("many sequences in shared steps give what each gives alone", "[engine]") {
  std::vector<std::vector<TokenId>> alone;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto engine = tiny_engine();
    alone.push_back(start(*engine, request_for(1 + i * 17, i)).get().tokens);
  }
  for (const int max_rows : {1, 7, 64, 512}) {
    const auto engine = tiny_engine({.max_step_rows = max_rows, .max_sequences = 5});
    std::vector<std::future<GenerationResult>> futures;
    for (std::uint64_t i = 0; i < 12; ++i) futures.push_back(start(*engine, request_for(1 + i * 17, i)));
    for (std::size_t i = 0; i < futures.size(); ++i) {
      const GenerationResult result = futures[i].get();
      INFO("sequence " << i << ", at most " << max_rows << " rows a step");
      CHECK(result.tokens == alone[i]);
      CHECK(result.error.empty());
      CHECK(result.prompt_tokens == static_cast<std::int64_t>(1 + i * 17));
      CHECK(result.kv_computed == result.kv_entries);
    }
    CHECK(engine->stats().kv_bytes == 0);
  }
}

TEST_CASE("sampling is repeatable by seed and differs between seeds", "[engine]") {
  const auto engine = tiny_engine();
  const auto run = [&](std::uint64_t seed) {
    GenerationRequest request = request_for(30, 1, 40);
    request.sampling = {.temperature = 1.0f, .top_k = 50, .seed = seed};
    return start(*engine, std::move(request)).get().tokens;
  };
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}

TEST_CASE("a stop string ends the output before it, in text and in tokens", "[engine]") {
  const auto engine = tiny_engine();
  const GenerationResult whole = start(*engine, request_for(25, 4, 30)).get();
  REQUIRE(whole.tokens.size() == 30);
  // A stop string of plain ASCII out of the middle of the free run's text.
  std::size_t at = std::string::npos;
  for (std::size_t i = 3; i + 1 < whole.text.size() && at == std::string::npos; ++i) {
    if (static_cast<unsigned char>(whole.text[i]) < 0x80) at = i;
  }
  REQUIRE(at != std::string::npos);
  const std::string stop(1, whole.text[at]);
  GenerationRequest request = request_for(25, 4, 30);
  request.stop = {stop};
  const GenerationResult cut = start(*engine, std::move(request)).get();
  CHECK(cut.reason == FinishReason::stop);
  CHECK(cut.text == whole.text.substr(0, whole.text.find(stop)));
  CHECK(cut.tokens.size() < whole.tokens.size());
  CHECK(std::equal(cut.tokens.begin(), cut.tokens.end(), whole.tokens.begin()));
}

TEST_CASE("streamed text joined is the text of the result", "[engine]") {
  const auto engine = tiny_engine();
  GenerationRequest request = request_for(40, 8, 50);
  auto streamed = std::make_shared<std::string>();
  auto prefilled = std::make_shared<int>(0);
  request.callbacks.on_prefilled = [prefilled](const GenerationResult&) { ++*prefilled; };
  request.callbacks.on_token = [streamed](TokenId, const std::string& text) { *streamed += text; };
  const GenerationResult result = start(*engine, std::move(request)).get();
  CHECK(*prefilled == 1);
  // The end of an unfinished character comes only with the result.
  CHECK(result.text.starts_with(*streamed));
  CHECK(result.text == engine->model().tokenizer->decode(result.tokens, true));
}

TEST_CASE("requests that cannot run are refused with the numbers", "[engine]") {
  const auto engine = tiny_engine({.kv_budget_bytes = 200000});
  using Catch::Contains;
  CHECK_THROWS_WITH(engine->submit(request_for(0, 1)), Contains("no tokens"));
  CHECK_THROWS_WITH(engine->submit(request_for(512, 1)), Contains("512 tokens") && Contains("context of 512"));
  CHECK_THROWS_WITH(engine->submit(request_for(10, 1, 0)), Contains("max_tokens"));
  CHECK_THROWS_WITH(engine->submit(request_for(500, 1, 5)), Contains("budget is 200000"));
  GenerationRequest request = request_for(3, 1);
  std::vector<TokenId> ids = request.prompt[0].tokens;
  ids[1] = 258;
  request.prompt[0].tokens = ids;
  CHECK_THROWS_WITH(engine->submit(std::move(request)), Contains("258 is outside the vocabulary"));
  request = request_for(3, 1);
  request.sampling.top_p = 2.0f;
  CHECK_THROWS_AS(engine->submit(std::move(request)), EngineError);
  request = request_for(3, 1);
  request.stop = {""};
  CHECK_THROWS_WITH(engine->submit(std::move(request)), Contains("empty"));
}

TEST_CASE("a prompt runs in larger steps while nobody decodes", "[engine]") {
  const auto steps_of = [](const LocalEngineOptions& options, bool beside_decoding) {
    const auto engine = tiny_engine(options);
    std::future<GenerationResult> other;
    if (beside_decoding) other = start(*engine, request_for(5, 1, 400));
    GenerationRequest request = request_for(100, 2, 1);
    std::int64_t steps = 0;
    request.callbacks.on_prefilled = [&](const GenerationResult&) { steps = engine->stats().steps; };
    const GenerationResult result = start(*engine, std::move(request)).get();
    if (beside_decoding) other.get();
    return std::pair(steps, result.tokens);
  };
  const auto [alone, tokens] = steps_of({.max_step_rows = 16, .max_prefill_rows = 64}, false);
  CHECK(alone == 2);
  const auto [beside, same_tokens] = steps_of({.max_step_rows = 16, .max_prefill_rows = 64}, true);
  CHECK(beside >= 4);  // one of both prompts at most, then 15 rows beside the one that decodes
  CHECK(same_tokens == tokens);
  CHECK(steps_of({.max_step_rows = 16}, false).first == 7);  // on the CPU
}

TEST_CASE("max_tokens is cut to the context", "[engine]") {
  const auto engine = tiny_engine();
  const GenerationResult result = start(*engine, request_for(500, 2, 1000)).get();
  CHECK(result.reason == FinishReason::length);
  CHECK(result.tokens.size() == 12);
}

TEST_CASE("waiting requests run when the KV budget allows it", "[engine]") {
  // Room for two sequences of 64 positions: 2 x (3 layers x 2 x 64 positions x 2 heads x 16 x 2 bytes).
  const auto engine = tiny_engine({.kv_budget_bytes = 2 * 3 * 2 * 64 * 2 * 16 * 2});
  std::vector<std::future<GenerationResult>> futures;
  for (std::uint64_t i = 0; i < 9; ++i) futures.push_back(start(*engine, request_for(20, i)));
  for (auto& future : futures) CHECK(future.get().error.empty());
  CHECK(engine->stats().kv_peak_bytes <= 2 * 3 * 2 * 64 * 2 * 16 * 2);
  CHECK(engine->stats().kv_peak_bytes > 0);
}

TEST_CASE("a callback that throws ends its own request only", "[engine]") {
  const auto engine = tiny_engine();
  GenerationRequest bad = request_for(10, 1);
  bad.callbacks.on_token = [](TokenId, const std::string&) { throw std::runtime_error("host trouble"); };
  auto failing = start(*engine, std::move(bad));
  auto fine = start(*engine, request_for(10, 2));
  const GenerationResult result = failing.get();
  CHECK(result.reason == FinishReason::error);
  CHECK(result.error == "host trouble");
  CHECK(fine.get().reason != FinishReason::error);
}

TEST_CASE("cancel storms: every request finishes once and all memory returns", "[engine][stress]") {
  const auto engine = tiny_engine({.max_step_rows = 32, .max_sequences = 6});
  std::mt19937_64 random(11);
  std::atomic<int> finished = 0;
  constexpr int kRequests = 300;
  for (int i = 0; i < kRequests; ++i) {
    GenerationRequest request = request_for(1 + random() % 60, random(), 1 + static_cast<std::int32_t>(random() % 30));
    request.callbacks.on_finished = [&](const GenerationResult&) { ++finished; };
    const RequestId id = engine->submit(std::move(request));
    if (random() % 2 == 0) engine->cancel(id);
    if (random() % 5 == 0) engine->cancel(id - random() % 5);
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
  }
  start(*engine, request_for(5, 1)).get();
  while (finished < kRequests) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(finished == kRequests);
  CHECK(engine->stats().kv_bytes == 0);
}

TEST_CASE("closing the engine cancels what is open, from outside and from a callback", "[engine]") {
  std::future<GenerationResult> open;
  {
    const auto engine = tiny_engine();
    open = start(*engine, request_for(30, 1, 400));
  }
  const GenerationResult result = open.get();
  CHECK((result.reason == FinishReason::cancelled || result.tokens.size() == 400));

  auto engine = tiny_engine();
  std::promise<void> closed;
  GenerationRequest request = request_for(5, 1, 2);
  auto* owner = new std::shared_ptr<StepEngine>(engine);
  request.callbacks.on_finished = [owner, &closed](const GenerationResult&) {
    delete owner;  // may be the last owner
    closed.set_value();
  };
  InferenceEngine& raw = *engine;
  raw.submit(std::move(request));
  engine.reset();
  closed.get_future().get();
}

TEST_CASE("submit and cancel from many threads", "[engine][stress]") {
  const auto engine = tiny_engine({.max_sequences = 8});
  const auto expected = start(*engine, request_for(12, 5)).get().tokens;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 12; ++i) {
        RequestId id = 0;
        auto future = start(*engine, request_for(12, 5), &id);
        if ((i + t) % 3 == 0) {
          engine->cancel(id);
          future.get();
        } else if (future.get().tokens != expected) {
          ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(engine->stats().kv_bytes == 0);
}

TEST_CASE("a long prefill reports its progress", "[engine]") {
  const auto engine = tiny_engine({.max_step_rows = 50, .progress_ms = 0});
  std::vector<std::int64_t> reported;
  std::int64_t total = 0;
  GenerationRequest request;
  request.prompt = {{"", random_tokens(220, 1)}};
  request.max_tokens = 2;
  std::promise<GenerationResult> over;
  request.callbacks.on_prefill_progress = [&](std::int64_t tokens, std::int64_t prompt_tokens) {
    reported.push_back(tokens);
    total = prompt_tokens;
  };
  request.callbacks.on_finished = [&](GenerationResult result) { over.set_value(std::move(result)); };
  engine->submit(request);
  CHECK(over.get_future().get().error.empty());
  CHECK(reported == std::vector<std::int64_t>{50, 100, 150, 200});
  CHECK(total == 220);

  over = {};
  request.callbacks.on_prefill_progress = [](std::int64_t, std::int64_t) { throw std::runtime_error("not now"); };
  request.callbacks.on_finished = [&](GenerationResult result) { over.set_value(std::move(result)); };
  engine->submit(request);
  CHECK(over.get_future().get().error == "not now");
}

}  // namespace step_engine_test
