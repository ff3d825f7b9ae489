// SPDX-License-Identifier: Apache-2.0
// Prompts that begin with the same tokens as one that is being computed: the common beginning is computed once, and
// every answer has the bits of one that was computed alone, whatever is cancelled or evicted meanwhile.
#include "engine/loop/kv_lookup.h"
#include "engine/registry.h"
#include "engine/reuse/rectify/rectify.h"

#include <catch2/catch.hpp>
#include <future>
#include <random>
#include <string_view>
#include <thread>

#include "tests/support/asking.h"
#include "tests/support/reuse_cases.h"
#include "tests/support/tiny_engine.h"

namespace live_prefix_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr std::int64_t kLayers = 3;  // of the tiny model

ReuseOptions method(std::string_view name) {
  ReuseOptions reuse;
  reuse.method = find_method(name);
  return reuse;
}

/// 230 tokens that the readers have in common, and 10 of their own.
std::vector<PromptPart> reader(std::uint64_t number) {
  PromptPart document = text(200, 2);
  document.slot = "input.document";
  return {text(30, 1), std::move(document), text(10, 100 + number)};
}

GenerationRequest request_of(std::vector<PromptPart> prompt, const ReuseOptions& reuse, std::int32_t max_tokens = 8) {
  GenerationRequest request;
  request.run = 1;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.max_tokens = max_tokens;
  return request;
}

Run alone(std::vector<PromptPart> prompt, std::int32_t max_tokens = 8, const TinyOptions& model = {}) {
  const auto engine = tiny_engine({}, model);
  return start(*engine, request_of(std::move(prompt), {}, max_tokens)).get();
}

/// Runs `action` once, on the engine's thread between two steps, as soon as the engine has run `rows` rows. A request
/// that decodes `tokens` random tokens gives the occasion.
std::future<Run> at_rows(InferenceEngine& engine, std::int64_t rows, std::function<void()> action,
                         std::size_t tokens = 400) {
  GenerationRequest clock = request_of({text(3, 77)}, {});
  clock.forced = random_tokens(tokens, 78);
  clock.callbacks.on_token = [&engine, rows, action = std::move(action), done = false](TokenId,
                                                                                       const std::string&) mutable {
    if (done || engine.stats().rows < rows) return;
    done = true;
    action();
  };
  return start(engine, std::move(clock));
}

/// Submits the readers between two steps, so that they arrive together.
std::vector<Run> together(InferenceEngine& engine, std::size_t count, const ReuseOptions& reuse,
                          std::size_t clock_tokens = 400) {
  std::vector<std::future<Run>> runs;
  const Run clock = at_rows(
                        engine, 0,
                        [&] {
                          for (std::size_t i = 0; i < count; ++i)
                            runs.push_back(start(engine, request_of(reader(i), reuse)));
                        },
                        clock_tokens)
                        .get();
  REQUIRE(clock.result.error.empty());
  std::vector<Run> done;
  for (auto& run : runs) done.push_back(run.get());
  return done;
}

std::int64_t computed(const std::vector<Run>& runs, std::int64_t layers = kLayers) {
  std::int64_t tokens = 0;
  for (const Run& run : runs) tokens += run.result.kv_computed / layers;
  return tokens;
}

void expect_empty(const InferenceEngine& engine) {
  for (int i = 0; i < 2000 && engine.stats().kv_bytes != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(engine.stats().kv_bytes == 0);
}

}  // namespace

TEST_CASE("live prefix: which prompt another one follows", "[engine][live]") {
  const auto a = random_tokens(100, 1), b = random_tokens(100, 2);
  const std::vector<LivePrefix> live = {{.id = 7, .tokens = a, .ready = 20, .coming = 80},
                                        {.id = 8, .tokens = b, .ready = 50, .coming = 50}};
  CHECK(live[0].common(a, 100) == 80);
  CHECK(live[0].common(a, 30) == 30);
  CHECK(live[0].common(std::span(a).first(10), 100) == 10);
  CHECK(live[0].common({}, 100) == 0);
  CHECK(live[0].common(a, -1) == 0);
  CHECK(lead_of(live, a, 99, 0).id == 7);
  CHECK(lead_of(live, a, 99, 0).length == 80);
  CHECK(lead_of(live, a, 99, 64).length == 80);
  CHECK(lead_of(live, a, 99, 65).id == 0);  // what is left is not worth waiting for
  CHECK(lead_of(live, a, 35, 0).id == 0);
  CHECK(lead_of(live, b, 99, 0).id == 0);  // it is computed already
}

TEST_CASE("live prefix: readers that run together compute their common beginning once", "[engine][live]") {
  for (const TinyOptions& model :
       {TinyOptions{}, TinyOptions{.window = 24, .bias = true}, quantized_tiny(BlockType::q8_0)}) {
    for (const char* name : {"prefix", "lockstep"}) {
      for (const std::int32_t rows : {512, 24}) {
        const auto engine = tiny_engine({.max_step_rows = rows}, model);
        const std::vector<Run> runs = together(*engine, 4, method(name));
        INFO(name << ", steps of " << rows);
        CHECK(computed(runs, model.layers) == 230 + 4 * 10);
        for (std::size_t i = 0; i < runs.size(); ++i) {
          CHECK(same(runs[i], alone(reader(i), 8, model)));
          if (i == 0) continue;
          CHECK(runs[i].result.uses[1].method->name == "prefix");
          CHECK(runs[i].result.uses[1].reused_tokens == 200);
        }
        expect_empty(*engine);
      }
    }
  }
}

TEST_CASE("live prefix: full computes everything, and lends nothing", "[engine][live]") {
  const auto engine = tiny_engine({.max_step_rows = 24});
  CHECK(computed(together(*engine, 3, method("full"))) == 3 * 240);
  ReuseOptions without = method("direct");
  without.prefix = false;
  CHECK(computed(together(*engine, 3, without)) == 3 * 240);
}

TEST_CASE("live prefix: methods that approximate share what is exact", "[engine][live]") {
  const auto engine = tiny_engine({.max_step_rows = 24});
  CHECK(computed(together(*engine, 3, method("direct"))) == 230 + 3 * 10);
  ReuseOptions recording = method("rectify");
  recording.range = {0, 1, 2};
  own<RectifyOptions>(recording).selection.score = SelectionOptions::Score::author;
  recording.record = true;
  std::vector<std::future<Run>> runs;
  at_rows(*engine, 0, [&] {
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto prompt = reader(50 + i);
      prompt[0] = text(30, 9);
      prompt[1].readers = 1;  // becomes a segment, with attention that is complete when its author is
      runs.push_back(start(*engine, request_of(std::move(prompt), recording)));
    }
  }).get();
  std::int64_t tokens = 0;
  for (auto& run : runs) tokens += run.get().result.kv_computed / kLayers;
  CHECK(tokens == 30 + 3 * 210);
}

namespace {

/// A document of 200 tokens behind 30 that each reader has for itself.
std::vector<PromptPart> own_reader(std::uint64_t number) {
  auto prompt = reader(number);
  prompt[0] = text(30, 200 + number);
  prompt[1].readers = 3;
  return prompt;
}

ReuseOptions relaying(std::string_view name) {
  ReuseOptions reuse = method(name);
  reuse.record = true;
  if (needs_range(*reuse.method)) reuse.range = {0, 1, 2};
  return reuse;
}

/// The second reader's run when it gets the segment of the first, which is over.
Run one_after_the_other(std::string_view name) {
  const auto engine = tiny_engine();
  const Run first = start(*engine, request_of(own_reader(0), relaying(name))).get();
  auto prompt = own_reader(1);
  REQUIRE(first.result.segments.size() == 3);
  prompt[1].segment = first.result.segments[1];
  prompt[1].readers = 0;
  return start(*engine, request_of(std::move(prompt), relaying(name))).get();
}

}  // namespace

TEST_CASE("live text: a text behind different beginnings is computed once and handed over", "[engine][live]") {
  for (const std::string& name : plain_methods()) {
    for (const std::int32_t rows : {512, 24}) {
      const auto engine = tiny_engine({.max_step_rows = rows});
      std::vector<std::future<Run>> futures;
      at_rows(*engine, 0, [&] {
        for (std::uint64_t i = 0; i < 4; ++i)
          futures.push_back(start(*engine, request_of(own_reader(i), relaying(name))));
      }).get();
      std::vector<Run> runs;
      for (auto& future : futures) runs.push_back(future.get());
      INFO(name << ", steps of " << rows);
      CHECK(same(runs[0], alone(own_reader(0))));
      CHECK(same(runs[1], one_after_the_other(name)));
      CHECK(runs[0].result.kv_computed == 240 * kLayers);
      REQUIRE(runs[0].result.segments.size() == 3);
      CHECK(runs[0].result.segments[1]);
      for (std::size_t i = 1; i < runs.size(); ++i) {
        const PartUse& use = runs[i].result.uses[1];
        INFO("reader " << i);
        CHECK(use.from_segment);
        CHECK(use.hops == 0);
        CHECK(runs[i].result.hops == 1);
        CHECK(runs[i].result.kv_computed < 200 * kLayers);
        if (name == "direct") CHECK(runs[i].result.kv_computed == 40 * kLayers);
      }
      runs.clear();
      expect_empty(*engine);
    }
  }
}

TEST_CASE("live text: answers that are verified are those of full behind a text that is handed over",
          "[engine][live]") {
  for (const std::int32_t rows : {512, 24}) {
    const auto engine = tiny_engine({.max_step_rows = rows});
    std::vector<std::future<Run>> futures;
    at_rows(*engine, 0, [&] {
      for (std::uint64_t i = 0; i < 4; ++i)
        futures.push_back(start(*engine, request_of(own_reader(i), relaying("verified"))));
    }).get();
    INFO("steps of " << rows);
    for (std::size_t i = 0; i < futures.size(); ++i) CHECK(same(futures[i].get(), alone(own_reader(i))));
  }
}

TEST_CASE("live text: readers have it from one whose answer ended at once, and in turn", "[engine][live]") {
  for (const bool in_turn : {false, true}) {
    const auto engine = in_turn ? tiny_engine({.max_sequences = 1}) : tiny_engine({.max_step_rows = 24});
    std::vector<std::future<Run>> readers;
    std::promise<void> submitted;
    GenerationRequest first = request_of({text(3, 77)}, {}, 1);  // its callback submits between two steps
    first.callbacks.on_finished = [&](const GenerationResult&) {
      for (std::uint64_t i = 0; i < 4; ++i)
        readers.push_back(start(*engine, request_of(own_reader(i), relaying("direct"), 1)));
      submitted.set_value();
    };
    engine->submit(std::move(first));
    submitted.get_future().get();
    INFO((in_turn ? "one after another" : "together"));
    CHECK(readers[0].get().result.kv_computed == 240 * kLayers);
    for (std::size_t i = 1; i < readers.size(); ++i) {
      const Run run = readers[i].get();
      CHECK(run.result.uses[1].from_segment);
      CHECK(run.result.kv_computed == 40 * kLayers);
    }
  }
}

TEST_CASE("live text: exact readers, short texts and other runs are left out", "[engine][live]") {
  const auto engine = tiny_engine({.max_step_rows = 24});
  for (const std::uint64_t why : {1, 2, 3, 4}) {
    std::vector<std::future<Run>> runs;
    at_rows(*engine, 0, [&] {
      for (std::uint64_t i = 0; i < 3; ++i) {
        ReuseOptions reuse = relaying(why == 1 ? "prefix" : "direct");
        if (why == 2) reuse.min_tokens = 201;
        GenerationRequest request = request_of(own_reader(10 * why + i), reuse);
        if (why == 3) request.run = 1 + i;
        if (why == 4) request.run = 0;
        runs.push_back(start(*engine, std::move(request)));
      }
    }).get();
    INFO("case " << why);
    for (auto& run : runs) CHECK(run.get().result.kv_computed == 240 * kLayers);
  }
}

TEST_CASE("live text: readers take over from one that is cancelled, wherever it is", "[engine][live]") {
  for (const std::int64_t rows : {5, 120, 232, 239, 243}) {
    const auto engine = tiny_engine({.max_step_rows = 16});
    std::vector<std::future<Run>> followers;
    RequestId leader = 0;
    auto clock = at_rows(*engine, 0, [&] {
      GenerationRequest request = request_of(own_reader(0), relaying("direct"), 3);
      request.callbacks.on_finished = [](const GenerationResult&) {};
      leader = engine->submit(std::move(request));
      for (std::uint64_t i = 1; i < 4; ++i)
        followers.push_back(start(*engine, request_of(own_reader(i), relaying("direct"))));
    });
    at_rows(*engine, rows, [&] { engine->cancel(leader); }).get();
    clock.get();
    INFO("cancelled after " << rows << " rows");
    std::int64_t tokens = 0;
    for (auto& follower : followers) {
      const Run run = follower.get();
      CHECK(run.result.error.empty());
      tokens += run.result.kv_computed / kLayers;
    }
    CHECK((tokens == 240 + 2 * 40 || tokens == 3 * 40));  // the document is computed once more at most
    expect_empty(*engine);
  }
}

TEST_CASE("live prefix: a reader that arrives midway, and one while the answer is decoded", "[engine][live]") {
  for (const std::int64_t rows : {0, 60, 150, 235, 245, 260}) {
    const auto engine = tiny_engine({.max_step_rows = 16});
    auto first = start(*engine, request_of(reader(0), method("prefix"), 60));
    std::future<Run> second;
    at_rows(*engine, rows, [&] { second = start(*engine, request_of(reader(1), method("prefix"))); }).get();
    INFO("after " << rows << " rows");
    CHECK(same(first.get(), alone(reader(0), 60)));
    const Run late = second.get();
    CHECK(same(late, alone(reader(1))));
    CHECK(late.result.kv_computed >= 10 * kLayers);
    CHECK(late.result.kv_computed < (10 + kMinFollowedTokens) * kLayers);  // too few to wait for
  }
}

TEST_CASE("live prefix: who follows takes over from a prompt that is cancelled", "[engine][live]") {
  for (const std::int64_t rows : {5, 40, 120, 200, 232, 239, 243}) {
    const auto engine = tiny_engine({.max_step_rows = 16});
    std::vector<std::future<Run>> followers;
    std::future<Run> first, clock;
    RequestId leader = 0;
    clock = at_rows(*engine, 0, [&] {
      GenerationRequest request = request_of(reader(0), method("prefix"), 3);
      request.callbacks.on_finished = [](const GenerationResult&) {};
      leader = engine->submit(std::move(request));
      for (std::uint64_t i = 1; i < 4; ++i)
        followers.push_back(start(*engine, request_of(reader(i), method("prefix"))));
    });
    const Run other = at_rows(*engine, rows, [&] { engine->cancel(leader); }).get();
    clock.get();
    INFO("cancelled after " << rows << " rows");
    for (std::size_t i = 0; i < followers.size(); ++i) CHECK(same(followers[i].get(), alone(reader(i + 1))));
    // 2 x (3 + 400) rows of the clocks, 3 x 8 of the followers' answers, 3 of the leader's.
    CHECK(engine->stats().rows <= 806 + 230 + 4 * 10 + 3 * 8 + 3 + kMinFollowedTokens);
    expect_empty(*engine);
  }
}

TEST_CASE("live prefix: while others decode, a prompt is stored as it is computed", "[engine][live]") {
  for (const bool others : {false, true}) {
    const auto engine = tiny_engine({.max_step_rows = 16, .max_draft = 0});
    std::future<Run> first, clock;
    if (others) {
      clock = at_rows(*engine, 0, [&] { first = start(*engine, request_of(reader(0), method("prefix"))); });
      clock.get();
    } else {
      first = start(*engine, request_of(reader(0), method("prefix")));
    }
    CHECK(same(first.get(), alone(reader(0))));
    CHECK(engine->stats().segments.segments == (others ? 2 : 1));
    const Run again = start(*engine, request_of(reader(0), method("prefix"))).get();
    CHECK(same(again, alone(reader(0))));
    CHECK(again.result.kv_computed == kLayers);
  }
}

TEST_CASE("live prefix: what two followers have in common beyond their leader", "[engine][live]") {
  const auto engine = tiny_engine({.max_step_rows = 16});
  std::vector<std::vector<PromptPart>> prompts;
  prompts.push_back({text(60, 1), text(100, 2)});
  for (std::uint64_t i = 0; i < 3; ++i) prompts.push_back({text(60, 1), text(80, 3), text(20, 10 + i)});
  std::vector<std::future<Run>> runs;
  at_rows(*engine, 0, [&] {
    for (const auto& prompt : prompts) runs.push_back(start(*engine, request_of(prompt, method("lockstep"))));
  }).get();
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Run run = runs[i].get();
    CHECK(same(run, alone(prompts[i])));
    tokens += run.result.kv_computed / kLayers;
  }
  CHECK(tokens == 60 + 100 + 80 + 3 * 20);
}

TEST_CASE("live prefix: a store without room, and a KV budget for two", "[engine][live]") {
  const auto room = tiny_engine();
  start(*room, request_of(reader(0), method("prefix"))).get();
  const std::int64_t bytes = room->stats().kv_peak_bytes;
  {
    const auto engine = tiny_engine({.segment_budget_bytes = 1, .max_step_rows = 24});
    CHECK(computed(together(*engine, 4, method("prefix"))) == 230 + 4 * 10);
  }
  {
    const auto engine = tiny_engine({.kv_budget_bytes = 2 * bytes + bytes / 2, .max_step_rows = 24});
    const std::vector<Run> runs = together(*engine, 6, method("prefix"), 8);  // 8: few, to leave room for two
    for (std::size_t i = 0; i < runs.size(); ++i) CHECK(same(runs[i], alone(reader(i))));
    CHECK(computed(runs) == 230 + 6 * 10);
    CHECK(engine->stats().kv_peak_bytes <= 2 * bytes + bytes / 2);
    expect_empty(*engine);
  }
}

TEST_CASE("live prefix: a request that follows keeps its place among the sequences", "[engine][live]") {
  const auto engine = tiny_engine({.max_step_rows = 16, .max_sequences = 3});
  std::vector<RequestId> order;
  std::vector<std::future<void>> over;
  at_rows(*engine, 0, [&] {
    for (std::uint64_t i = 0; i < 4; ++i) {
      GenerationRequest request = i < 3 ? request_of(reader(i), method("prefix")) : request_of({text(5, 60)}, {});
      request.callbacks.on_prefilled = [&order, i](const GenerationResult&) { order.push_back(i); };
      auto promise = std::make_shared<std::promise<void>>();
      over.push_back(promise->get_future());
      request.callbacks.on_finished = [promise](const GenerationResult&) { promise->set_value(); };
      engine->submit(std::move(request));
    }
  }).get();
  for (auto& one : over) one.get();
  REQUIRE(order.size() == 4);
  CHECK(order[0] + order[1] == 1);  // the last one waits until one of the first two has ended
}

TEST_CASE("live prefix: early prompts leave a common beginning to one of them", "[engine][live][ahead]") {
  const auto engine = tiny_engine();
  std::vector<EarlyId> early;
  for (std::uint64_t i = 0; i < 4; ++i) {
    std::vector<EarlyPart> parts;
    for (PromptPart& part : reader(i)) parts.push_back({std::move(part.tokens)});
    early.push_back(engine->prepare({std::move(parts), true, 260, method("lockstep")}));
  }
  while (engine->stats().busy_ahead || engine->stats().rows_ahead < 270) std::this_thread::yield();
  CHECK(engine->stats().rows_ahead == 230 + 4 * 10);
  for (std::uint64_t i = 0; i < 4; ++i) {
    GenerationRequest request = request_of(reader(i), method("lockstep"));
    request.early = early[i];
    const Run run = start(*engine, std::move(request)).get();
    CHECK(same(run, alone(reader(i))));
    CHECK(run.result.kv_computed == (i == 0 ? 240 : 10) * kLayers);
  }
  CHECK(engine->stats().rows <= 270 + 4 * 8);
  expect_empty(*engine);
}

TEST_CASE("live prefix: an early prompt that continues a running one computes nothing twice", "[engine][live][ahead]") {
  const auto engine = tiny_engine();
  GenerationRequest first = request_of(reader(0), method("lockstep"), 60);
  auto promise = std::make_shared<std::promise<GenerationResult>>();
  first.callbacks.on_finished = [promise](GenerationResult result) { promise->set_value(std::move(result)); };
  std::atomic<EarlyId> early{0};
  RequestId id = 0;
  std::promise<void> gate;
  first.callbacks.on_prefilled = [opened = gate.get_future().share()](const GenerationResult&) { opened.wait(); };
  id = engine->submit(std::move(first));
  std::vector<EarlyPart> parts;
  for (PromptPart& part : reader(0)) parts.push_back({std::move(part.tokens)});
  parts.push_back({{}, id});
  parts.push_back({random_tokens(12, 5)});
  early = engine->prepare({std::move(parts), true, 400, method("lockstep")});
  gate.set_value();
  const GenerationResult answer = promise->get_future().get();
  std::vector<PromptPart> prompt = reader(0);
  prompt.push_back({"answer", answer.tokens});
  prompt.push_back({"", random_tokens(12, 5)});
  GenerationRequest next = request_of(prompt, method("lockstep"));
  next.early = early;
  const Run run = start(*engine, std::move(next)).get();
  CHECK(same(run, alone(prompt)));
  CHECK(run.result.kv_computed <= (12 + 2) * kLayers);
  CHECK(engine->stats().rows_ahead <= 12 + 2);
  expect_empty(*engine);
}

TEST_CASE("live prefix: random readers, cancelled and evicted, keep their bits", "[engine][live]") {
  const TinyOptions small{.layers = 2, .width = 16, .heads = 2, .kv_heads = 1, .head_dim = 8, .ffn_width = 16};
  for (const std::int64_t segments : {std::int64_t{0}, std::int64_t{20000}, std::int64_t{1}}) {
    const auto engine = tiny_engine(
        {.kv_budget_bytes = 600000, .segment_budget_bytes = segments, .max_step_rows = 20, .max_sequences = 6}, small);
    const auto reference = tiny_engine({}, small);
    std::atomic<int> wrong{0}, compared{0};
    const auto storm = [&](std::uint64_t seed) {
      std::mt19937_64 random(seed);
      const auto pick = [&](std::uint64_t n) { return random() % n; };
      for (int i = 0; i < 60; ++i) {
        std::vector<std::future<Run>> runs;
        std::vector<std::vector<PromptPart>> prompts;
        std::vector<RequestId> ids;
        for (std::uint64_t readers = 1 + pick(5); readers > 0; --readers) {
          std::vector<PromptPart> prompt = {text(1 + pick(2) * 40, pick(2))};
          for (std::uint64_t parts = pick(3); parts > 0; --parts) prompt.push_back(text(30, pick(2)));
          prompt.push_back(text(1 + pick(20), random()));
          static const char* const kNames[] = {"prefix", "lockstep", "full"};
          GenerationRequest request =
              request_of(prompt, method(kNames[pick(3)]), static_cast<std::int32_t>(1 + pick(6)));
          auto promise = std::make_shared<std::promise<Run>>();
          runs.push_back(promise->get_future());
          request.callbacks.on_finished = [promise](GenerationResult result) {
            Run run;
            run.result = std::move(result);
            promise->set_value(std::move(run));
          };
          if (pick(3) == 0) {
            std::vector<EarlyPart> parts;
            for (const PromptPart& part : prompt) parts.push_back({part.tokens});
            request.early = engine->prepare({std::move(parts), pick(2) == 0, 150, method("lockstep")});
          }
          prompts.push_back(std::move(prompt));
          ids.push_back(engine->submit(std::move(request)));
        }
        for (const RequestId id : ids) {
          if (pick(3) == 0) engine->cancel(id);
        }
        for (std::size_t at = 0; at < runs.size(); ++at) {
          const GenerationResult got = runs[at].get().result;
          if (got.reason == FinishReason::cancelled) continue;
          const Run expected = start(*reference, request_of(prompts[at], {}, 6)).get();
          const std::size_t n = got.tokens.size();
          ++compared;
          if (!got.error.empty() || n > expected.result.tokens.size() ||
              !std::equal(got.tokens.begin(), got.tokens.end(), expected.result.tokens.begin()))
            ++wrong;
        }
      }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 3; ++i) threads.emplace_back(storm, 10 * i + 1);
    for (std::thread& thread : threads) thread.join();
    INFO("segment budget " << segments);
    CHECK(wrong == 0);
    CHECK(compared > 100);
    expect_empty(*engine);
  }
}

}  // namespace live_prefix_test
