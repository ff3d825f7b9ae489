// SPDX-License-Identifier: Apache-2.0
// Method verified through the engine: agents start on approximate KV, and every answer is that of full prefill, token
// for token, whatever was written tentatively.
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "tests/support/tiny_model.h"

namespace verified_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr LayerRange kRange{1, 2, 4};

std::shared_ptr<StepEngine> make_engine(LocalEngineOptions options = {}) {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, {.layers = 6});
  auto engine = std::make_shared<StepEngine>(std::move(backend), std::move(weights), options);
  update_calibration(*engine, [&](Calibration& now) { now.range = kRange; });
  return engine;
}

ReuseOptions verified() {
  ReuseOptions reuse;
  reuse.method = find_method("verified");
  reuse.min_tokens = 8;
  reuse.record = true;
  return reuse;
}

struct Answer {
  GenerationResult result;
  std::vector<TokenId> tentative, confirmed;  // of the callbacks
  std::int64_t kept = -1;
};

std::future<Answer> start(InferenceEngine& engine, GenerationRequest request, RequestId* id = nullptr) {
  auto answer = std::make_shared<Answer>();
  auto promise = std::make_shared<std::promise<Answer>>();
  request.callbacks.on_tentative_token = [answer](TokenId token, const std::string&) {
    answer->tentative.push_back(token);
  };
  request.callbacks.on_token = [answer](TokenId token, const std::string&) { answer->confirmed.push_back(token); };
  request.callbacks.on_confirmed = [answer](std::int64_t kept, std::int64_t) { answer->kept = kept; };
  request.callbacks.on_finished = [answer, promise](GenerationResult result) {
    answer->result = std::move(result);
    promise->set_value(std::move(*answer));
  };
  const RequestId submitted = engine.submit(std::move(request));
  if (id != nullptr) *id = submitted;
  return promise->get_future();
}

GenerationRequest request_of(std::vector<PromptPart> prompt, const ReuseOptions& reuse) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.max_tokens = 40;
  request.output_readers = reuse.record ? 4 : 0;
  return request;
}

PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed), nullptr, 0}; }

/// An answer of 90 tokens as a part of later prompts.
PromptPart written(InferenceEngine& engine, std::uint64_t seed) {
  GenerationRequest author = request_of({text(20, seed)}, verified());
  author.forced = random_tokens(90, seed + 1000);
  PromptPart part{"answer", author.forced, nullptr, 0};
  part.segment = start(engine, std::move(author)).get().result.output;
  REQUIRE(part.segment);
  return part;
}

std::vector<PromptPart> prompt_of(const PromptPart& answer, std::uint64_t seed) {
  return {text(30, seed + 2000), answer, text(6, seed + 3000)};
}

GenerationResult in_full(InferenceEngine& engine, GenerationRequest request) {
  request.reuse = {};
  request.output_readers = 0;
  return start(engine, std::move(request)).get().result;
}

}  // namespace

TEST_CASE("verified: every answer is that of full, greedy or with a seed", "[reuse][verified]") {
  const auto engine = make_engine();
  const float temperature = GENERATE(0.0f, 0.8f);
  int tentative = 0, changed = 0;
  std::int64_t kept = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    GenerationRequest request = request_of(prompt_of(written(*engine, seed), seed), verified());
    request.sampling.temperature = temperature;
    request.sampling.seed = seed;
    if (seed % 3 == 0) request.sampling.repetition_penalty = 1.2f;
    const GenerationResult expected = in_full(*engine, request);
    const Answer found = start(*engine, request).get();
    REQUIRE(found.result.error.empty());
    CHECK(found.result.tokens == expected.tokens);
    CHECK(found.result.text == expected.text);
    CHECK(found.result.reason == expected.reason);
    CHECK(found.confirmed == found.result.tokens);
    CHECK(found.result.hops == 0);
    const auto written_first = static_cast<std::int64_t>(found.tentative.size());
    CHECK(found.result.tentative_tokens == written_first);
    if (written_first == 0) continue;
    ++tentative;
    CHECK(found.kept == found.result.confirmed_tokens);
    CHECK(found.kept <= written_first);
    CHECK(std::equal(found.tentative.begin(), found.tentative.begin() + found.kept, found.result.tokens.begin()));
    kept += found.kept;
    changed += found.kept < written_first ? 1 : 0;
  }
  CHECK(tentative == 30);
  CHECK(changed > 0);  // or the check would never have had to drop anything
  CHECK(kept > 0);
}

TEST_CASE("verified: an answer that ends before its prompt has exact KV is checked all the same", "[reuse][verified]") {
  const auto engine = make_engine();
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    GenerationRequest request = request_of(prompt_of(written(*engine, seed), seed), verified());
    request.max_tokens = static_cast<std::int32_t>(seed);
    const GenerationResult expected = in_full(*engine, request);
    const Answer found = start(*engine, request).get();
    CHECK(found.result.tokens == expected.tokens);
    CHECK(found.result.reason == expected.reason);
  }
}

TEST_CASE("verified: the record is that of the exact prompt, and what its twin computed is not ahead of it",
          "[reuse][verified]") {
  const auto engine = make_engine();
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Answer found = start(*engine, request_of(prompt_of(written(*engine, seed), seed), verified())).get();
    REQUIRE(found.result.tentative_tokens > 0);
    CHECK(found.result.kv_ahead == 0);
    for (const PartUse& use : found.result.uses) CHECK(use.ahead_tokens == 0);
    CHECK(found.result.uses.at(1).method == &full_method());
    CHECK(found.result.expected_nats < 0.0f);
    CHECK(found.result.guard_left < 0.0f);  // what the guard of the rectified prompt measured
    CHECK(found.result.guard_nats < 0.0f);
  }
}

TEST_CASE("verified: what readers get is exact", "[reuse][verified]") {
  const auto engine = make_engine();
  const std::vector<PromptPart> prompt = prompt_of(written(*engine, 1), 1);
  const Answer found = start(*engine, request_of(prompt, verified())).get();
  REQUIRE(found.result.output);
  ReuseOptions full;
  full.record = true;
  const Answer exact = start(*engine, request_of(prompt, full)).get();
  REQUIRE(exact.result.output);
  ReuseOptions direct;
  direct.method = find_method("direct");
  direct.min_tokens = 8;
  std::vector<std::vector<TokenId>> read;
  for (const SegmentHandle& handle : {found.result.output, exact.result.output}) {
    CHECK(engine->segment(handle)->hops == 0);
    PromptPart part{"answer", found.result.tokens, handle, 0};
    read.push_back(start(*engine, request_of({text(9, 5), part, text(3, 6)}, direct)).get().result.tokens);
  }
  CHECK(read[0] == read[1]);
}

TEST_CASE("verified: answers in company are those of full", "[reuse][verified]") {
  const auto engine = make_engine();
  std::vector<GenerationRequest> requests;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    requests.push_back(request_of(prompt_of(written(*engine, seed), seed), verified()));
  std::vector<std::future<Answer>> answers;
  for (const GenerationRequest& request : requests) answers.push_back(start(*engine, request));
  for (std::size_t i = 0; i < requests.size(); ++i)
    CHECK(answers[i].get().result.tokens == in_full(*engine, requests[i]).tokens);
}

TEST_CASE("verified: without memory for a second sequence the prompt is computed after the tentative part",
          "[reuse][verified]") {
  const auto roomy = make_engine();
  const GenerationRequest sized = request_of(prompt_of(written(*roomy, 1), 1), verified());
  start(*roomy, sized).get();
  LocalEngineOptions options;
  options.kv_budget_bytes = roomy->stats().kv_peak_bytes * 6 / 10;  // the peak had two caches of the prompt
  options.segment_budget_bytes = 1 << 20;
  const auto engine = make_engine(options);
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const GenerationRequest request = request_of(prompt_of(written(*engine, seed), seed), verified());
    const Answer found = start(*engine, request).get();
    CHECK(found.result.error.empty());
    CHECK(found.result.tokens == in_full(*engine, request).tokens);
  }
}

TEST_CASE("verified: a cancelled tentative answer leaves nothing", "[reuse][verified]") {
  const auto engine = make_engine();
  const PromptPart answer = written(*engine, 1);
  for (int i = 0; i < 40; ++i) {
    RequestId id = 0;
    auto cancelled = start(*engine, request_of(prompt_of(answer, 50 + static_cast<std::uint64_t>(i)), verified()), &id);
    std::this_thread::sleep_for(std::chrono::microseconds(150 * i));
    engine->cancel(id);
    const Answer found = cancelled.get();
    CHECK(found.result.tokens == found.confirmed);  // nothing tentative
  }
  const GenerationRequest request = request_of(prompt_of(answer, 500), verified());
  CHECK(start(*engine, request).get().result.tokens == in_full(*engine, request).tokens);
  while (engine->stats().busy_ahead) std::this_thread::yield();
  CHECK(engine->stats().kv_bytes == 0);
}

TEST_CASE("verified: nothing is tentative where nothing is handed over", "[reuse][verified]") {
  const auto engine = make_engine();
  const Answer plain = start(*engine, request_of({text(120, 1)}, verified())).get();
  CHECK(plain.tentative.empty());
  GenerationRequest forced = request_of(prompt_of(written(*engine, 2), 2), verified());
  forced.forced = random_tokens(5, 9);
  CHECK(start(*engine, forced).get().tentative.empty());
  GenerationRequest near = request_of({text(5, 7), written(*engine, 3)}, verified());
  std::vector<TokenId> first = near.prompt[1].tokens;
  first.resize(20);  // another text than the segment's
  near.prompt[1].tokens = first;
  CHECK(start(*engine, near).get().tentative.empty());
}

}  // namespace verified_test
