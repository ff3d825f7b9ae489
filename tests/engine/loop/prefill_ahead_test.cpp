// SPDX-License-Identifier: Apache-2.0
// Prompts computed ahead of their requests: whatever is known when, whoever is cut off or cancelled, and however little
// memory there is, a request's answer has the bits of one that was computed alone.
#include <catch2/catch.hpp>
#include <future>
#include <random>
#include <set>
#include <thread>

#include "engine/loop/prefill_ahead.h"
#include "engine/registry.h"
#include "tests/support/tiny_engine.h"

namespace prefill_ahead_test {

using namespace baton;
using namespace baton::test;

namespace {

ReuseOptions lockstep(bool prefix = false) {
  ReuseOptions reuse;
  reuse.method = find_method("lockstep");
  reuse.prefix = prefix;
  return reuse;
}

struct Answer {
  GenerationResult result;
  std::vector<std::vector<float>> logits;  // before each token
};

bool same(const Answer& a, const Answer& b) { return a.result.tokens == b.result.tokens && a.logits == b.logits; }

/// A request under way, with what it answers. With a gate, its first token waits until that is opened.
class Asked {
 public:
  Asked(InferenceEngine& engine, GenerationRequest request, bool with_gate = false) {
    if (!with_gate) open();
    request.callbacks.on_prefilled = [gate = gate_->get_future().share()](const GenerationResult&) { gate.wait(); };
    request.callbacks.on_logits = [answer = answer_](std::span<const float> logits) {
      answer->logits.emplace_back(logits.begin(), logits.end());
    };
    request.callbacks.on_finished = [answer = answer_, promise = promise_](GenerationResult result) {
      answer->result = std::move(result);
      promise->set_value();
    };
    id = engine.submit(std::move(request));
  }
  void open() const { gate_->set_value(); }
  const Answer& get() const {
    promise_->get_future().wait();
    return *answer_;
  }
  RequestId id = 0;

 private:
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
  std::shared_ptr<std::promise<void>> promise_ = std::make_shared<std::promise<void>>();
  std::shared_ptr<std::promise<void>> gate_ = std::make_shared<std::promise<void>>();
};

GenerationRequest request_of(std::vector<std::vector<TokenId>> parts, std::int32_t max_tokens = 8,
                             const ReuseOptions& reuse = {}) {
  GenerationRequest request;
  for (auto& tokens : parts) request.prompt.push_back({"", std::move(tokens)});
  request.max_tokens = max_tokens;
  request.reuse = reuse;
  return request;
}

Answer alone(const std::vector<std::vector<TokenId>>& parts, const TinyOptions& model = {}) {
  const auto engine = tiny_engine({}, model);
  return Asked(*engine, request_of(parts)).get();
}

/// Waits until the engine has computed so many rows ahead, in all.
void wait_for_rows(const InferenceEngine& engine, std::int64_t rows) {
  while (engine.stats().rows_ahead < rows) std::this_thread::yield();
}

void expect_empty(const InferenceEngine& engine) {
  for (int i = 0; i < 2000 && engine.stats().kv_bytes != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(engine.stats().kv_bytes == 0);
}

std::vector<TokenId> known(const EarlySequence& sequence) { return {sequence.known().begin(), sequence.known().end()}; }

}  // namespace

TEST_CASE("ahead: an early sequence knows what its parts say", "[engine][ahead]") {
  std::vector<TokenId> decoded;
  const DecodedTokens running = [&](RequestId id) { return id == 7 ? &decoded : nullptr; };
  EarlySequence sequence(1, {{{{1, 2}}, {{}, 7}, {{3}}}, true, 100, {}}, {});
  CHECK(known(sequence) == std::vector<TokenId>{1, 2});
  CHECK(!sequence.settled());
  decoded = {10, 11};
  sequence.refresh(running);
  decoded = {10, 11, 12};
  sequence.refresh(running);
  CHECK(known(sequence) == std::vector<TokenId>{1, 2, 10, 11, 12});

  SECTION("its end brings what stands behind it; a stop string takes tokens back") {
    decoded = {10, 11};
    sequence.ended(7, &decoded);
    CHECK(known(sequence) == std::vector<TokenId>{1, 2, 10, 11, 3});
    CHECK(sequence.settled());
  }
  SECTION("without an answer nothing behind it is known") {
    sequence.ended(7, nullptr);
    CHECK(known(sequence) == std::vector<TokenId>{1, 2});
    CHECK(!sequence.settled());
    sequence.update({{{1, 2}}, {{}, 8}, {{3}}}, true);
    CHECK(known(sequence) == std::vector<TokenId>{1, 2});
  }
  SECTION("an update of what comes later keeps what was followed") {
    sequence.update({{{1, 2}}, {{}, 7}, {{4}}}, true);
    CHECK(known(sequence) == std::vector<TokenId>{1, 2, 10, 11, 12});
    sequence.ended(7, &decoded);
    CHECK(known(sequence) == std::vector<TokenId>{1, 2, 10, 11, 12, 4});
  }
  SECTION("an update that has not heard of the end keeps the answer") {
    decoded = {10, 11};
    sequence.ended(7, &decoded);
    sequence.update({{{1, 2}}, {{}, 7}, {{4}}}, true);
    CHECK(known(sequence) == std::vector<TokenId>{1, 2, 10, 11, 4});
  }
  SECTION("an update of what came before takes it back") {
    sequence.update({{{1, 5}}, {{}, 7}}, false);
    CHECK(known(sequence) == std::vector<TokenId>{1, 5});
    sequence.update({}, false);
    CHECK(known(sequence).empty());
  }
}

TEST_CASE("ahead: no more is followed than there is room for", "[engine][ahead]") {
  std::vector<TokenId> decoded(50, 9);
  EarlySequence sequence(1, {{{{1, 2}}, {{}, 7}, {{3}}}, true, 20, {}}, {});
  sequence.refresh([&](RequestId) { return &decoded; });
  CHECK(sequence.known().size() == 20);
  sequence.ended(7, &decoded);
  CHECK(sequence.known().size() == 20);
  CHECK(!sequence.settled());
}

TEST_CASE("ahead: a mirror ends with its upstream, with the bits of a full prefill", "[engine][ahead]") {
  for (const TinyOptions& model : {TinyOptions{}, TinyOptions{.heads = 4, .kv_heads = 4, .window = 24, .bias = true},
                                   TinyOptions{.heads = 8, .kv_heads = 1, .qk_norm = true, .dtype = DType::f32}}) {
    const auto engine = tiny_engine({}, model);
    const auto head = random_tokens(60, 1), between = random_tokens(9, 2), tail = random_tokens(5, 3);
    const Asked upstream(*engine, request_of({random_tokens(40, 4)}, 90, lockstep()), true);
    const EarlyId early = engine->prepare({{{head}, {{}, upstream.id}, {tail}}, true, 200, lockstep()});
    upstream.open();
    const auto answer = upstream.get().result.tokens;
    REQUIRE(answer.size() > 10);
    GenerationRequest request = request_of({head, answer, tail}, 8, lockstep());
    request.early = early;
    const Answer got = Asked(*engine, std::move(request)).get();
    CHECK(same(got, alone({head, answer, tail}, model)));
    CHECK(got.result.kv_ahead > 0);
    CHECK(got.result.kv_computed == got.result.kv_entries);
    CHECK(got.result.uses[0].method->name == "lockstep");
    CHECK(got.result.uses[0].ahead_tokens == 60);
    CHECK(got.result.uses[0].kv_reused == 0);
    expect_empty(*engine);
  }
}

TEST_CASE("ahead: a complete prompt that waits is asked for its logits only", "[engine][ahead]") {
  const auto engine = tiny_engine();
  const auto text = random_tokens(70, 5);
  const EarlyId early = engine->prepare({{{text}}, true, 90, lockstep()});
  wait_for_rows(*engine, 70);
  const std::int64_t steps = engine->stats().steps;
  GenerationRequest request = request_of({text}, 1, lockstep());
  request.early = early;
  const Answer got = Asked(*engine, std::move(request)).get();
  CHECK(same(got, [&] {
    const auto other = tiny_engine();
    return Asked(*other, request_of({text}, 1)).get();
  }()));
  CHECK(engine->stats().steps == steps);
  CHECK(got.result.kv_ahead == got.result.kv_entries);
  expect_empty(*engine);
}

TEST_CASE("ahead: a request that keeps its context takes over its early prompt, without prefixes, too",
          "[engine][ahead]") {
  const auto engine = tiny_engine();
  const auto text = random_tokens(70, 5);
  const EarlyId early = engine->prepare({{{text}}, true, 90, lockstep(), "", {}, true});
  wait_for_rows(*engine, 70);
  GenerationRequest request = request_of({text}, 1, lockstep());
  request.keep_context = true;
  request.early = early;
  const Answer got = Asked(*engine, std::move(request)).get();
  CHECK(same(got, [&] {
    const auto other = tiny_engine();
    return Asked(*other, request_of({text}, 1)).get();
  }()));
  CHECK(got.result.kv_ahead == got.result.kv_entries);
}

TEST_CASE("ahead: what turned out otherwise is computed again", "[engine][ahead]") {
  const auto engine = tiny_engine();
  const auto head = random_tokens(50, 6), guess = random_tokens(30, 7);
  for (const std::size_t common : {std::size_t{0}, std::size_t{1}, std::size_t{20}, std::size_t{50}, std::size_t{65}}) {
    const std::int64_t before = engine->stats().rows_ahead;
    const EarlyId early = engine->prepare({{{head}, {guess}}, true, 120, lockstep()});
    wait_for_rows(*engine, before + 80);
    std::vector<TokenId> prompt = head;
    prompt.insert(prompt.end(), guess.begin(), guess.end());
    prompt.resize(common);
    const auto other = random_tokens(25, 100 + common);
    prompt.insert(prompt.end(), other.begin(), other.end());
    GenerationRequest request = request_of({prompt}, 8, lockstep());
    request.early = early;
    const Answer got = Asked(*engine, std::move(request)).get();
    INFO(common << " tokens in common");
    CHECK(same(got, alone({prompt})));
    const std::int64_t by_chance = got.result.kv_ahead / 3 - static_cast<std::int64_t>(common);  // 3 layers
    CHECK((by_chance == 0 || by_chance == 1));
  }
  expect_empty(*engine);
}

TEST_CASE("ahead: a stop string takes back what was mirrored behind it", "[engine][ahead]") {
  const auto engine = tiny_engine();
  const auto prompt = random_tokens(25, 4), head = random_tokens(33, 8), tail = random_tokens(3, 9);
  const std::string text = Asked(*engine, request_of({prompt}, 40)).get().result.text;
  std::string stop;  // two ASCII characters out of the middle
  for (std::size_t at = text.size() / 2; at + 1 < text.size() && stop.empty(); ++at) {
    if (text[at] > ' ' && text[at + 1] > ' ' && text[at] < 127 && text[at + 1] < 127) stop = text.substr(at, 2);
  }
  REQUIRE(!stop.empty());
  GenerationRequest cut = request_of({prompt}, 40, lockstep());
  cut.stop = {stop};
  const Asked upstream(*engine, std::move(cut));
  const EarlyId early = engine->prepare({{{head}, {{}, upstream.id}, {tail}}, true, 120, lockstep()});
  const GenerationResult answer = upstream.get().result;
  CHECK(answer.reason == FinishReason::stop);
  GenerationRequest request = request_of({head, answer.tokens, tail}, 8, lockstep());
  request.early = early;
  CHECK(same(Asked(*engine, std::move(request)).get(), alone({head, answer.tokens, tail})));
  expect_empty(*engine);
}

TEST_CASE("ahead: a cancelled upstream rolls its mirrors back, another attempt is followed instead",
          "[engine][ahead]") {
  const auto engine = tiny_engine({.max_draft = 0});
  const auto head = random_tokens(30, 1), tail = random_tokens(4, 2);
  const Asked first(*engine, request_of({random_tokens(20, 3)}, 400, lockstep()));
  const EarlyId early = engine->prepare({{{head}, {{}, first.id}, {tail}}, true, 300, lockstep()});
  wait_for_rows(*engine, 30);
  engine->cancel(first.id);
  CHECK(first.get().result.reason == FinishReason::cancelled);
  const Asked second(*engine, request_of({random_tokens(20, 4)}, 60, lockstep()));
  engine->update(early, {{head}, {{}, second.id}, {tail}}, true);
  const auto answer = second.get().result.tokens;
  GenerationRequest request = request_of({head, answer, tail}, 8, lockstep());
  request.early = early;
  const Answer got = Asked(*engine, std::move(request)).get();
  CHECK(same(got, alone({head, answer, tail})));
  CHECK(got.result.kv_ahead >= 30 * 3);
  expect_empty(*engine);
}

TEST_CASE("ahead: a chain of agents, each mirrored in all behind it", "[engine][ahead]") {
  for (const std::int32_t most_rows : {512, 16, 3}) {
    const auto engine = tiny_engine({.max_step_rows = most_rows});
    constexpr std::size_t kAgents = 5;
    std::vector<std::vector<TokenId>> roles, answers;
    for (std::size_t i = 0; i < kAgents; ++i) roles.push_back(random_tokens(20 + i, 10 + i));
    const auto parts_of = [&](std::size_t agent) {
      std::vector<std::vector<TokenId>> parts = {roles[agent]};
      for (std::size_t i = 0; i < std::min(agent, answers.size()); ++i) {
        parts.push_back(answers[i]);
        parts.push_back({static_cast<TokenId>(i)});
      }
      return parts;
    };
    std::vector<EarlyId> early(kAgents, 0);
    for (std::size_t agent = 0; agent < kAgents; ++agent) {
      GenerationRequest request = request_of(parts_of(agent), 30, lockstep());
      request.early = early[agent];
      const Asked asked(*engine, std::move(request), true);
      for (std::size_t later = agent + 1; later < kAgents; ++later) {
        std::vector<EarlyPart> parts;
        for (auto& tokens : parts_of(later)) parts.push_back({std::move(tokens)});
        parts.push_back({{}, asked.id});
        const bool complete = later == agent + 1;
        if (complete) parts.push_back({{static_cast<TokenId>(agent)}});
        if (early[later] == 0) {
          early[later] = engine->prepare({std::move(parts), complete, 250, lockstep()});
        } else {
          engine->update(early[later], std::move(parts), complete);
        }
      }
      asked.open();
      const Answer& got = asked.get();
      INFO("agent " << agent << ", " << most_rows << " rows a step");
      if (agent > 0) CHECK(got.result.kv_ahead > 0);
      const auto reference = tiny_engine();
      CHECK(same(got, Asked(*reference, request_of(parts_of(agent), 30)).get()));
      answers.push_back(got.result.tokens);
    }
    expect_empty(*engine);
  }
}

TEST_CASE("ahead: prefixes are placed, not computed, and counted as reused", "[engine][ahead]") {
  const auto engine = tiny_engine();
  const auto role = random_tokens(64, 1), question = random_tokens(30, 2);
  Asked(*engine, request_of({role}, 1, lockstep(true))).get();
  const EarlyId early = engine->prepare({{{role}, {question}}, true, 110, lockstep(true)});
  wait_for_rows(*engine, 30);
  GenerationRequest request = request_of({role, question}, 8, lockstep(true));
  request.early = early;
  const Answer got = Asked(*engine, std::move(request)).get();
  CHECK(same(got, alone({role, question})));
  CHECK(got.result.kv_ahead == 30 * 3);
  CHECK(got.result.kv_entries - got.result.kv_computed == 64 * 3);
  CHECK(got.result.uses[0].method->name == "prefix");
  CHECK(got.result.uses[1].method->name == "lockstep");
}

TEST_CASE("ahead: without memory there is less of it, and requests come first", "[engine][ahead]") {
  const auto room = tiny_engine();
  const std::int64_t bytes = [&] {
    Asked(*room, request_of({random_tokens(100, 1)}, 50, lockstep())).get();
    return room->stats().kv_peak_bytes;
  }();
  REQUIRE(bytes > 0);
  const auto engine = tiny_engine({.kv_budget_bytes = 2 * bytes + bytes / 2});
  const auto text = random_tokens(100, 2);
  std::vector<EarlyId> early;
  for (int i = 0; i < 4; ++i) early.push_back(engine->prepare({{{text}}, true, 150, lockstep()}));
  wait_for_rows(*engine, 200);  // two of the four
  CHECK(engine->stats().kv_bytes <= 2 * bytes + bytes / 2);
  const Asked first(*engine, request_of({random_tokens(100, 3)}, 50, lockstep()));
  const Asked second(*engine, request_of({random_tokens(100, 4)}, 50, lockstep()));
  CHECK(first.get().result.error.empty());
  CHECK(second.get().result.error.empty());
  for (const EarlyId id : early) {
    GenerationRequest request = request_of({text}, 8, lockstep());
    request.early = id;
    CHECK(same(Asked(*engine, std::move(request)).get(), alone({text})));
  }
  CHECK(engine->stats().kv_peak_bytes <= 2 * bytes + bytes / 2);
  expect_empty(*engine);
}

TEST_CASE("ahead: a prompt that does not fit holds up no other", "[engine][ahead]") {
  const auto room = tiny_engine();
  Asked(*room, request_of({random_tokens(100, 1)}, 28, lockstep())).get();
  const std::int64_t bytes = room->stats().kv_peak_bytes;  // of 128 tokens
  const auto engine = tiny_engine({.kv_budget_bytes = bytes + bytes / 2});
  engine->prepare({{{random_tokens(300, 1)}}, true, 400, lockstep()});
  const auto text = random_tokens(90, 2);
  const EarlyId early = engine->prepare({{{text}}, false, 120, lockstep()});
  wait_for_rows(*engine, 90);
  const std::int64_t steps = engine->stats().steps;
  for (int i = 0; i < 2000 && engine->stats().busy_ahead; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(!engine->stats().busy_ahead);
  GenerationRequest request = request_of({text}, 8, lockstep());
  request.early = early;
  const Answer got = Asked(*engine, std::move(request)).get();
  CHECK(same(got, alone({text})));
  CHECK(got.result.kv_ahead == 89 * 3);
  CHECK(engine->stats().steps >= steps);
}

TEST_CASE("ahead: few rows a step are enough", "[engine][ahead]") {
  const auto engine = tiny_engine({.max_step_rows = 3});
  const auto head = random_tokens(30, 1);
  const Asked upstream(*engine, request_of({random_tokens(5, 2)}, 300, lockstep()), true);
  engine->prepare({{{head}, {{}, upstream.id}}, false, 400, lockstep()});
  upstream.open();
  upstream.get();
  CHECK(engine->stats().rows_ahead > 30);
}

TEST_CASE("ahead: ids that are not known, and prompts that make no sense", "[engine][ahead]") {
  const auto engine = tiny_engine();
  engine->update(77, {{{1, 2}}}, true);
  engine->forget(78);
  GenerationRequest request = request_of({random_tokens(10, 1)}, 4, lockstep());
  request.early = 79;
  CHECK(same(Asked(*engine, std::move(request)).get(), [] {
    const auto other = tiny_engine();
    return Asked(*other, request_of({random_tokens(10, 1)}, 4)).get();
  }()));
  CHECK_THROWS_AS(engine->prepare({{{{1, 99999}}}, true, 10, lockstep()}), EngineError);
  CHECK_THROWS_AS(engine->prepare({{{{1, 2}}}, true, 0, lockstep()}), EngineError);
  ReuseOptions relay;
  relay.method = find_method("direct");
  CHECK_THROWS_WITH(engine->prepare({{{{1, 2}}}, true, 10, relay}), Catch::Contains("exact"));
  const EarlyId early = engine->prepare({{{{1, 2}}}, true, 10, lockstep()});
  CHECK_THROWS_AS(engine->update(early, {{{-5}}}, true), EngineError);
  GenerationRequest wrong = request_of({{1, 2}}, 0, lockstep());
  wrong.early = early;  // ends with the request that was refused
  CHECK_THROWS_AS(engine->submit(std::move(wrong)), EngineError);
  expect_empty(*engine);
  engine->prepare({{{{1, 2}}, {{}, 12345}}, true, 10, lockstep()});  // whose upstream never comes; the engine closes
}

TEST_CASE("ahead: decoding goes on beside it, and other requests keep their bits", "[engine][ahead]") {
  const auto engine = tiny_engine({.max_step_rows = 64});
  std::vector<Asked> asked;
  std::vector<std::vector<TokenId>> texts;
  for (std::uint64_t i = 0; i < 6; ++i) {
    texts.push_back(random_tokens(20 + 13 * i, 50 + i));
    asked.emplace_back(*engine, request_of({texts.back()}, 8, lockstep()));
    engine->prepare({{{random_tokens(90, i)}, {{}, asked.back().id}}, false, 200, lockstep()});
  }
  for (std::size_t i = 0; i < asked.size(); ++i) CHECK(same(asked[i].get(), alone({texts[i]})));
}

TEST_CASE("ahead: 10000 random ends, cancels and changes of mind leave nothing behind", "[engine][ahead]") {
  const auto engine = tiny_engine(
      {.max_step_rows = 32}, {.layers = 2, .width = 16, .heads = 2, .kv_heads = 1, .head_dim = 8, .ffn_width = 16});
  const auto reference =
      tiny_engine({}, {.layers = 2, .width = 16, .heads = 2, .kv_heads = 1, .head_dim = 8, .ffn_width = 16});
  std::atomic<int> wrong{0}, compared{0};
  const auto storm = [&](std::uint64_t seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](std::uint64_t n) { return random() % n; };
    for (int i = 0; i < 2500; ++i) {
      const auto head = random_tokens(1 + pick(20), pick(5)), tail = random_tokens(1 + pick(4), pick(5));
      GenerationRequest up =
          request_of({random_tokens(1 + pick(12), random())}, static_cast<std::int32_t>(1 + pick(12)), lockstep());
      up.sampling = {.temperature = 1.5f, .seed = random()};
      const Asked upstream(*engine, std::move(up));
      const EarlyId early = engine->prepare(
          {{{head}, {{}, upstream.id}, {tail}}, true, static_cast<std::int32_t>(10 + pick(60)), lockstep()});
      if (pick(4) == 0) engine->cancel(upstream.id);
      if (pick(8) == 0) engine->update(early, {{head}, {tail}}, pick(2) == 0);
      const auto answer = pick(3) == 0 ? random_tokens(pick(6), random()) : upstream.get().result.tokens;
      if (pick(5) == 0) {
        engine->forget(early);
        continue;
      }
      GenerationRequest request = request_of({head, answer, tail}, 3, lockstep());
      request.early = early;
      const Asked asked(*engine, std::move(request));
      if (pick(6) == 0) engine->cancel(asked.id);
      if (pick(40) != 0) continue;  // most are left to themselves
      const Answer& got = asked.get();
      if (got.result.reason == FinishReason::cancelled) continue;
      ++compared;
      if (!same(got, Asked(*reference, request_of({head, answer, tail}, 3)).get())) ++wrong;
    }
  };
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) threads.emplace_back(storm, seed);
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(compared > 20);
  expect_empty(*engine);
  CHECK(engine->stats().rows_ahead > 1000);
  CHECK(engine->stats().segments.bytes == 0);
}

}  // namespace prefill_ahead_test
