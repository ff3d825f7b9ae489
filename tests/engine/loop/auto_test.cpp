// SPDX-License-Identifier: Apache-2.0
// Method auto through the engine: what it rectifies has the bits of method rectify, what it does not those of full.
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <thread>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/auto/auto.h"
#include "engine/text/constrain/grammar.h"
#include "tests/support/reuse_run.h"
#include "tests/support/tiny_model.h"

namespace auto_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr LayerRange kRange{1, 2, 4};
constexpr double kReuse = 0.8;

std::shared_ptr<StepEngine> engine_with_levels(double high = 0.01) {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, {.layers = 6});
  auto engine = std::make_shared<StepEngine>(std::move(backend), std::move(weights), LocalEngineOptions());
  update_calibration(*engine, [&](Calibration& now) { now.levels = {kRange, {{kReuse, high / 2, high}}}; });
  return engine;
}

Run ask(InferenceEngine& engine, std::vector<PromptPart> prompt, const ReuseOptions& reuse, EarlyId early = 0) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.early = early;
  request.max_tokens = 4;
  request.output_readers = reuse.record ? 4 : 0;
  return run(engine, std::move(request));
}

ReuseOptions automatic(float tolerance = 0.02f) {
  ReuseOptions reuse;
  reuse.method = find_method("auto");
  own<AutoOptions>(reuse).tolerance = tolerance;
  reuse.min_tokens = 8;
  reuse.record = true;
  return reuse;
}

ReuseOptions rectify() {
  ReuseOptions reuse = automatic();
  reuse.method = find_method("rectify");
  reuse.range = kRange;
  own<RectifyOptions>(reuse).reuse = kReuse;
  return reuse;
}

PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed), nullptr, 0}; }

/// A question that an author reads first, as a part of later prompts.
PromptPart question(InferenceEngine& engine, const ReuseOptions& author) {
  PromptPart part{"question", random_tokens(40, 7), nullptr, 4};
  const Run made = ask(engine, {text(12, 1), part, text(5, 2)}, author);
  REQUIRE(made.result.segments.size() == 3);
  part.segment = made.result.segments[1];
  part.readers = 0;
  return part;
}

}  // namespace

TEST_CASE("auto: a text is rectified at the level of the model, with the bits of rectify", "[reuse][auto]") {
  const auto engine = engine_with_levels();
  const PromptPart read = question(*engine, automatic());
  REQUIRE(read.segment);
  const Run relayed = ask(*engine, {text(20, 3), read, text(6, 4)}, automatic());
  CHECK(relayed.result.uses[1].method->name == "rectify");
  CHECK(relayed.result.uses[1].from_segment);
  CHECK(relayed.result.uses[1].kv_reused >= static_cast<std::int64_t>(kReuse * 40 * 6));
  CHECK(relayed.result.hops == 1);
  CHECK(relayed.result.uses[1].reason == "80 % of it reused; 0.005 nats expected");
  CHECK(same(relayed, ask(*engine, {text(20, 3), read, text(6, 4)}, rectify())));
}

TEST_CASE("auto: without a level within the tolerance every token is exact, and the record says why", "[reuse][auto]") {
  const auto engine = engine_with_levels(0.5);
  const PromptPart read = question(*engine, automatic());
  REQUIRE(read.segment);
  ReuseOptions full;
  const Run exact = ask(*engine, {text(20, 3), read, text(6, 4)}, automatic());
  CHECK(exact.result.uses[1].method->name == "full");
  CHECK(exact.result.uses[1].reason.find("the tolerance is 0.02") != std::string::npos);
  CHECK(same(exact, ask(*engine, {text(20, 3), read, text(6, 4)}, full)));
}

TEST_CASE("auto: the answer of an exact agent can still be rectified by others", "[reuse][auto]") {
  const auto engine = engine_with_levels();
  ReuseOptions judge = automatic();
  judge.exactness = Exactness::exact_reader;
  const PromptPart read = question(*engine, judge);
  REQUIRE(read.segment);
  const std::vector<PromptPart> prompt = {text(20, 3), read, text(6, 4)};
  const Run exact = ask(*engine, prompt, judge);
  CHECK(exact.result.uses[1].reason == "its reader is declared exact");
  CHECK(same(exact, ask(*engine, prompt, ReuseOptions())));
  const std::vector<PromptPart> other = {text(20, 5), read, text(6, 4)};
  const Run relayed = ask(*engine, other, automatic());
  CHECK(relayed.result.uses[1].method->name == "rectify");
  CHECK(same(relayed, ask(*engine, other, rectify())));
}

TEST_CASE("auto: an exact prefix is preferred, and what it held does not become a segment", "[reuse][auto]") {
  const auto engine = engine_with_levels();
  ask(*engine, {text(12, 1), text(40, 7), text(5, 2)}, automatic());  // leaves a prefix
  PromptPart part{"question", random_tokens(40, 7), nullptr, 4};
  const Run made = ask(*engine, {text(12, 1), part, text(9, 3)}, automatic());
  CHECK(made.result.uses[1].method->name == "prefix");
  CHECK(made.result.segments[1] == nullptr);
  CHECK(made.result.output != nullptr);
}

TEST_CASE("auto: a prompt whose guard measures too much is computed in full, before its first token", "[reuse][auto]") {
  const auto engine = engine_with_levels();
  ReuseOptions reuse = automatic();
  reuse.prefix = false;  // which would hold the prompt the second time
  const PromptPart read = question(*engine, reuse);
  const std::vector<PromptPart> prompt = {text(20, 3), read, text(6, 4)};
  const Run relayed = ask(*engine, prompt, reuse);
  CHECK(relayed.result.guard_left > 0.0f);
  RelayLevels levels = engine->calibration().levels;
  levels.guard_scale = 0.02 / (0.5 * relayed.result.guard_left);  // expected: twice the tolerance
  update_calibration(*engine, [&](Calibration& now) { now.levels = levels; });
  const Run full = ask(*engine, prompt, ReuseOptions());
  const Run guarded = ask(*engine, prompt, reuse);
  CHECK(same(guarded, full));
  CHECK(guarded.result.hops == 0);
  CHECK(guarded.result.kv_computed == guarded.result.kv_entries);
  CHECK(guarded.result.uses[1].method->name == "full");
  CHECK(guarded.result.uses[1].reason.find("the guard measured") == 0);
  CHECK(guarded.result.guard_left == relayed.result.guard_left);
  CHECK(guarded.result.guard_nats == Approx(0.04f));
  CHECK(guarded.result.expected_nats == relayed.result.expected_nats);
  CHECK(relayed.result.expected_nats == Approx(0.005f));
  CHECK(relayed.result.guard_nats < 0.0f);  // without a scale
  CHECK(full.result.expected_nats < 0.0f);

  std::vector<std::future<Run>> all;  // while others decode
  for (int i = 0; i < 6; ++i)
    all.push_back(std::async(std::launch::async, [&] { return ask(*engine, prompt, reuse); }));
  for (auto& one : all) CHECK(same(one.get(), full));
  levels.guard_scale = 0.02 / (2.0 * relayed.result.guard_left);
  update_calibration(*engine, [&](Calibration& now) { now.levels = levels; });
  CHECK(same(ask(*engine, prompt, reuse), relayed));
}

namespace {

/// An engine whose levels predict this divergence, and a prompt that reads a text.
struct TieSetting {
  std::shared_ptr<StepEngine> engine;
  ReuseOptions reuse = automatic(1000.0f);
  std::vector<PromptPart> prompt;

  explicit TieSetting(double divergence) : engine(engine_with_levels(2 * divergence)) {
    reuse.prefix = false;
    const PromptPart read = question(*engine, reuse);
    prompt = {text(20, 3), read, text(6, 4)};
  }
  Run decide(const std::function<void(GenerationRequest&)>& how, const ReuseOptions& by) const {
    GenerationRequest request;
    request.prompt = prompt;
    request.reuse = by;
    request.max_tokens = 24;
    how(request);
    return run(*engine, std::move(request));
  }
};

constexpr double kAnyIsNear = 300.0, kNoneIsNear = 1e-9;  // nats

}  // namespace

TEST_CASE("auto: a choice with a small margin is made again on exact KV", "[reuse][auto][decisions]") {
  const bool long_texts = GENERATE(false, true);
  const auto choose = [&](GenerationRequest& request) {
    for (std::uint64_t i = 0; i < 5; ++i) request.choices.push_back(random_tokens(long_texts ? 3 + i : 1, 90 + i));
  };
  const TieSetting near(kAnyIsNear), far(kNoneIsNear);
  const Run full = near.decide(choose, ReuseOptions());
  const Run again = near.decide(choose, near.reuse);
  CHECK(again.result.choices == full.result.choices);
  CHECK(again.result.tokens == full.result.tokens);
  CHECK(again.result.decisions == 1);
  CHECK(again.result.decisions_exact == 1);
  CHECK(again.result.hops == 0);
  CHECK(again.result.kv_computed == again.result.kv_entries);
  CHECK(again.result.uses[1].method->name == "full");
  CHECK(again.result.uses[1].kv_reused == 0);
  CHECK(again.result.uses[1].reason.find("a decision has a margin of") == 0);
  CHECK(again.logits.size() == full.logits.size());
  const Run stands = far.decide(choose, far.reuse);
  CHECK(stands.result.choices != full.result.choices);
  CHECK(stands.result.decisions == 1);
  CHECK(stands.result.decisions_exact == 0);
  CHECK(stands.result.uses[1].method->name == "rectify");
  CHECK(full.result.decisions == 0);
}

TEST_CASE("auto: a token of few that a constraint leaves is decided on exact KV, the answer before it stays",
          "[reuse][auto][decisions]") {
  const std::string pattern = GENERATE("(A|B|C|D)", "[^~]{6,9}~(A|B|C|D)", "[^~]{3}~(x|y)[^~]{4}~(A|B|C|D)");
  CAPTURE(pattern);
  const auto constrain = [&](GenerationRequest& request) { request.constraint = regex_grammar(pattern); };
  const TieSetting near(kAnyIsNear), far(kNoneIsNear);
  const Run again = near.decide(constrain, near.reuse);
  CHECK(again.result.decisions == 1);
  CHECK(again.result.decisions_exact == 1);
  CHECK(again.result.hops == 0);
  CHECK(again.result.kv_computed == again.result.kv_entries);
  CHECK(again.logits.size() >= again.result.tokens.size());
  const Run exact =
      near.decide([&](GenerationRequest& request) { request.forced = again.result.tokens; }, ReuseOptions());
  // From the decision on all logits are the exact ones, those before it are not.
  std::size_t first = 0;
  while (first < again.logits.size() && again.logits[first] != exact.logits[first]) ++first;
  CHECK((first == 0) == pattern.starts_with("("));
  REQUIRE(first < again.logits.size());
  for (std::size_t i = first; i < again.logits.size(); ++i) CHECK(again.logits[i] == exact.logits[i]);
  const Run stands = far.decide(constrain, far.reuse);
  CHECK(stands.result.decisions > 0);
  CHECK(stands.result.decisions_exact == 0);
  CHECK(stands.logits.front() != exact.logits.front());
}

TEST_CASE("auto: decisions are made again while other requests decode", "[reuse][auto][decisions]") {
  const TieSetting near(kAnyIsNear);
  const auto constrain = [](GenerationRequest& request) { request.constraint = regex_grammar("[^~]{4,7}~(A|B|C|D)"); };
  const Run alone = near.decide(constrain, near.reuse);
  std::vector<std::future<Run>> all;
  for (int i = 0; i < 6; ++i)
    all.push_back(std::async(std::launch::async, [&] { return near.decide(constrain, near.reuse); }));
  for (auto& one : all) CHECK(same(one.get(), alone));
}

TEST_CASE("auto: sampled answers, free texts and exact prompts decide nothing", "[reuse][auto][decisions]") {
  const TieSetting near(kAnyIsNear);
  const Run free = near.decide([](GenerationRequest&) {}, near.reuse);
  CHECK(free.result.decisions == 0);
  CHECK(free.result.hops == 1);
  const Run sampled = near.decide(
      [](GenerationRequest& request) {
        request.constraint = regex_grammar("(A|B|C|D)");
        request.sampling.temperature = 1.0f;
      },
      near.reuse);
  CHECK(sampled.result.decisions == 0);
  const Run one = near.decide([](GenerationRequest& request) { request.choices = {random_tokens(2, 90)}; }, near.reuse);
  CHECK(one.result.decisions == 0);
}

TEST_CASE("auto: what stands before the first rectified text is computed ahead, and no more", "[reuse][auto]") {
  const auto engine = engine_with_levels();
  const PromptPart read = question(*engine, automatic());
  const std::vector<PromptPart> prompt = {text(20, 3), read, text(6, 4)};
  EarlyPrompt early;
  early.parts = {{prompt[0].tokens}, {prompt[1].tokens, 0, true}, {prompt[2].tokens}};
  early.complete = true;
  early.longest = 100;
  early.reuse = automatic();
  const EarlyId id = engine->prepare(early);
  while (engine->stats().rows_ahead < 20) std::this_thread::yield();
  const Run relayed = ask(*engine, prompt, automatic(), id);
  CHECK(engine->stats().rows_ahead == 20);
  CHECK(relayed.result.uses[0].ahead_tokens == 20);
  CHECK(relayed.result.uses[0].method->name == "lockstep");
  CHECK(relayed.result.uses[1].method->name == "rectify");
  CHECK(same(relayed, ask(*engine, prompt, rectify())));

  early.reuse.exactness = Exactness::exact;  // for an exact reader all of it is
  early.parts[0].tokens = random_tokens(20, 30);
  const EarlyId whole = engine->prepare(early);
  while (engine->stats().rows_ahead < 20 + 66) std::this_thread::yield();
  engine->forget(whole);
}

}  // namespace auto_test
