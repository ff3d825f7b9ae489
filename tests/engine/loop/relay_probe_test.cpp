// SPDX-License-Identifier: Apache-2.0
// Turns of method auto that the engine measures with probes, and what it decides by them.
#include "engine/loop/relay_probe.h"
#include "engine/registry.h"
#include "engine/reuse/auto/auto.h"

#include <baton/distributions.h>
#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <utility>

#include "tests/support/reuse_run.h"
#include "tests/support/tiny_engine.h"

namespace relay_probe_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr LayerRange kRange{1, 2, 4};
constexpr double kReuse = 0.75;
constexpr std::int32_t kTokens = 20;

/// `high`: what the model's level expects; far above the tolerance the first turns are exact.
std::shared_ptr<StepEngine> engine_with_levels(double high, LocalEngineOptions options = {}, double guard_scale = 0) {
  auto engine = tiny_engine(options, {.layers = 6});
  update_calibration(*engine, [&](Calibration& now) {
    now.levels = {kRange, {{kReuse, high / 2, high}}, guard_scale};
  });
  return engine;
}

/// Turns leave no prefix, so that equal prompts are computed alike.
ReuseOptions automatic() {
  ReuseOptions reuse;
  reuse.method = find_method("auto");
  reuse.min_tokens = 8;
  reuse.record = true;
  reuse.prefix = false;
  return reuse;
}

ReuseOptions rectify() {
  ReuseOptions reuse = automatic();
  reuse.method = find_method("rectify");
  reuse.range = kRange;
  own<RectifyOptions>(reuse).reuse = kReuse;
  return reuse;
}

PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed)}; }

GenerationRequest request_of(std::vector<PromptPart> prompt, const ReuseOptions& reuse) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.max_tokens = kTokens;
  request.reader = "reader";
  return request;
}

/// A prompt with a text that another agent has read first.
std::vector<PromptPart> prompt_of(InferenceEngine& engine, std::uint64_t seed = 7) {
  PromptPart part{"question", random_tokens(40, seed), nullptr, 4};
  const Run made = run(engine, request_of({text(12, 1), part, text(5, 2)}, automatic()));
  REQUIRE(made.result.segments.at(1));
  part.segment = made.result.segments[1];
  part.readers = 0;
  return {text(20, 3), part, text(6, 4)};
}

void wait_for_probes(const StepEngine& engine) {
  while (engine.stats().measuring > 0) std::this_thread::yield();
}

Run measured_turn(StepEngine& engine, const std::vector<PromptPart>& prompt) {
  Run turn = run(engine, request_of(prompt, automatic()));
  wait_for_probes(engine);
  return turn;
}

std::vector<RelayObservation> observations(StepEngine& engine, const std::vector<PromptPart>& prompt) {
  const auto history = engine.changed_history();
  REQUIRE(history);
  const auto found = history->places().find(place_of("reader", prompt));
  REQUIRE(found != history->places().end());
  return found->second.observations;
}

Run forced(InferenceEngine& engine, const std::vector<PromptPart>& prompt, const ReuseOptions& reuse,
           const std::vector<TokenId>& answer) {
  GenerationRequest request = request_of(prompt, reuse);
  request.forced = answer;
  return run(engine, std::move(request));
}

double mean_divergence(const Run& full, const Run& other, std::size_t rows) {
  double sum = 0.0;
  for (std::size_t i = 0; i < rows; ++i) sum += divergence(full.logits.at(i), other.logits.at(i));
  return sum / static_cast<double>(rows);
}

/// Three turns of the prompt's place.
RelayHistory history_of(const std::vector<PromptPart>& prompt, double divergence) {
  RelayHistory history;
  for (int i = 0; i < 3; ++i) history.add(place_of("reader", prompt), {kReuse, divergence});
  return history;
}

}  // namespace

TEST_CASE("probe: of an exact turn, it finds what rectification would have left", "[history]") {
  const auto engine = engine_with_levels(1e5);
  const auto prompt = prompt_of(*engine);
  const Run turn = measured_turn(*engine, prompt);
  CHECK(turn.result.hops == 0);
  const auto found = observations(*engine, prompt);
  REQUIRE(found.size() == 1);
  const Run rectified = forced(*engine, prompt, rectify(), turn.result.tokens);
  REQUIRE(rectified.result.uses[1].from_segment);
  CHECK(found[0].divergence == Approx(mean_divergence(turn, rectified, kTokens)));
  CHECK(found[0].divergence > 0.0);
  CHECK(found[0].reuse == Approx(static_cast<double>(rectified.result.uses[1].kv_reused) / (40 * 6)));
}

TEST_CASE("probe: of a rectified turn, it finds what rectification left", "[history]") {
  const auto engine = engine_with_levels(0.01);
  const auto prompt = prompt_of(*engine);
  const Run turn = measured_turn(*engine, prompt);
  REQUIRE(turn.result.hops == 1);
  const auto found = observations(*engine, prompt);
  REQUIRE(found.size() == 1);
  const Run full = forced(*engine, prompt, ReuseOptions(), turn.result.tokens);
  CHECK(found[0].divergence == Approx(mean_divergence(full, turn, kTokens)));
  CHECK(found[0].divergence > 0.0);
  CHECK(found[0].reuse == Approx(static_cast<double>(turn.result.uses[1].kv_reused) / (40 * 6)));
}

TEST_CASE("probe: it keeps what the guard expected, of its own prompt or of the turn's", "[history]") {
  constexpr double kScale = 1e-6;  // refuses nothing
  for (const double high : {1e5, 0.01}) {
    const auto engine = engine_with_levels(high, {}, kScale);
    const auto prompt = prompt_of(*engine);
    const Run turn = measured_turn(*engine, prompt);
    REQUIRE(turn.result.hops == (high < 1 ? 1 : 0));
    const auto found = observations(*engine, prompt);
    REQUIRE(found.size() == 1);
    const Run rectified = forced(*engine, prompt, rectify(), turn.result.tokens);
    REQUIRE(rectified.result.guard_left > 0.0f);
    CHECK(found[0].guard == Approx(kScale * rectified.result.guard_left));
  }
}

TEST_CASE("probe: a place whose guard refuses its turns becomes exact after three", "[history]") {
  const auto engine = engine_with_levels(0.03, {}, 1e6);  // expected: within the tolerance, if not in 95 %
  const auto prompt = prompt_of(*engine);
  for (int turn = 0; turn < 3; ++turn) {
    const Run refused = measured_turn(*engine, prompt);
    CHECK(refused.result.hops == 0);
    CHECK(refused.result.guard_nats > 0.02f);
  }
  const Run exact = run(*engine, request_of(prompt, automatic()));
  CHECK(exact.result.guard_nats < 0.0f);  // it was not tried
  CHECK(exact.result.uses[1].reason.find("its guard refused 3 of them") != std::string::npos);
}

TEST_CASE("probe: three good turns make a place rectify, bad ones make it exact again", "[history]") {
  const auto engine = engine_with_levels(1e5);
  const auto prompt = prompt_of(*engine);
  for (int turn = 0; turn < 3; ++turn) CHECK(measured_turn(*engine, prompt).result.hops == 0);
  const auto found = observations(*engine, prompt);
  REQUIRE(found.size() == 3);
  CHECK(found[0] == found[2]);
  ReuseOptions reuse = automatic();
  own<AutoOptions>(reuse).tolerance = static_cast<float>(found[0].divergence * 6.0);  // e^(2.92 * 0.5 * 1.155) is 5.4
  const Run relayed = run(*engine, request_of(prompt, reuse));
  CHECK(relayed.result.hops == 1);
  CHECK(relayed.result.uses[1].reason.find("3 measured turns of this place: 75 % of it reused") == 0);
  CHECK(relayed.result.expected_nats == Approx(found[0].divergence));
  own<AutoOptions>(reuse).tolerance = static_cast<float>(found[0].divergence * 5.0);
  const Run exact = run(*engine, request_of(prompt, reuse));
  CHECK(exact.result.hops == 0);
  CHECK(exact.result.uses[1].reason.find("3 measured turns of this place: rectification is expected") == 0);
  own<AutoOptions>(reuse).tolerance = static_cast<float>(found[0].divergence * 6.0);
  GenerationRequest other = request_of(prompt, reuse);
  other.reader = "another";
  const Run by_another = run(*engine, std::move(other));
  CHECK(by_another.result.hops == 0);
  RelayHistory history = history_of(prompt, found[0].divergence);
  for (int turn = 0; turn < 3; ++turn) history.add(place_of("reader", prompt), {kReuse, 100 * found[0].divergence});
  update_calibration(*engine, [&](Calibration& now) { now.history = history; });
  CHECK(run(*engine, request_of(prompt, reuse)).result.hops == 0);
}

TEST_CASE("probe: exact readers and `history: false` are neither measured nor decided by turns", "[history]") {
  const auto engine = engine_with_levels(0.01);
  const auto prompt = prompt_of(*engine);
  ReuseOptions reuse = automatic();
  reuse.exactness = Exactness::exact;
  CHECK(run(*engine, request_of(prompt, reuse)).result.hops == 0);
  reuse = automatic();
  own<AutoOptions>(reuse).history = false;
  CHECK(run(*engine, request_of(prompt, reuse)).result.hops == 1);
  CHECK(!engine->changed_history());
  update_calibration(*engine, [&](Calibration& now) { now.history = history_of(prompt, 10.0); });
  CHECK(run(*engine, request_of(prompt, reuse)).result.hops == 1);
  CHECK(run(*engine, request_of(prompt, automatic())).result.hops == 0);
}

TEST_CASE("probe: a short answer, and one that was cancelled, are not measured", "[history]") {
  const auto engine = engine_with_levels(0.01);
  const auto prompt = prompt_of(*engine);
  GenerationRequest brief = request_of(prompt, automatic());
  brief.max_tokens = 7;
  run(*engine, std::move(brief));
  wait_for_probes(*engine);
  GenerationRequest cancelled = request_of(prompt, automatic());
  cancelled.max_tokens = 400;
  std::promise<void> first, done;
  cancelled.callbacks.on_token = [&, told = false](TokenId, const std::string&) mutable {
    if (!std::exchange(told, true)) first.set_value();
  };
  cancelled.callbacks.on_finished = [&](const GenerationResult&) { done.set_value(); };
  const RequestId id = engine->submit(std::move(cancelled));
  first.get_future().get();
  engine->cancel(id);
  done.get_future().get();
  wait_for_probes(*engine);
  while (engine->stats().kv_bytes > 0) std::this_thread::yield();  // their probes end with them
  CHECK(observations(*engine, prompt).size() <= 1);                // 24 tokens may have been there
}

TEST_CASE("probe: its prompt is computed while its turn is written", "[history]") {
  const auto engine = engine_with_levels(1e5);
  const auto prompt = prompt_of(*engine);
  GenerationRequest request = request_of(prompt, automatic());
  request.max_tokens = 23;  // fewer than a probe compares at most
  std::promise<void> done;
  double before_end = 0.0;
  std::int64_t at_end = -1;
  request.callbacks.on_token = [&](TokenId, const std::string&) { before_end = engine->stats().measured_ms; };
  request.callbacks.on_finished = [&](const GenerationResult&) {  // on the engine's thread, which measures later
    at_end = engine->stats().measured_turns;
    done.set_value();
  };
  engine->submit(std::move(request));
  done.get_future().get();
  CHECK(before_end > 0.0);
  CHECK(at_end == 0);
  wait_for_probes(*engine);
  CHECK(observations(*engine, prompt).size() == 1);
  CHECK(engine->stats().measured_turns == 1);
}

TEST_CASE("probe: early prompts decide as their requests", "[history]") {
  const auto engine = engine_with_levels(1e5);
  const auto prompt = prompt_of(*engine);
  update_calibration(*engine, [&](Calibration& now) { now.history = history_of(prompt, 1e-6); });
  EarlyPrompt early;
  early.parts = {{prompt[0].tokens}, {prompt[1].tokens, 0, true, "question"}, {prompt[2].tokens}};
  early.complete = true;
  early.longest = 100;
  early.reuse = automatic();
  early.reader = "reader";
  const EarlyId id = engine->prepare(early);
  while (engine->stats().busy_ahead || engine->stats().rows_ahead < 20) std::this_thread::yield();
  CHECK(engine->stats().rows_ahead == 20);
  GenerationRequest request = request_of(prompt, automatic());
  request.early = id;
  const Run relayed = run(*engine, std::move(request));
  CHECK(relayed.result.uses[0].ahead_tokens == 20);
  CHECK(relayed.result.hops == 1);
  early.reader = "another";  // of which nothing is known
  const EarlyId whole = engine->prepare(early);
  while (engine->stats().rows_ahead < 20 + 66) std::this_thread::yield();
  engine->forget(whole);
}

TEST_CASE("probe: measured answers are those of turns that are not measured", "[history]") {
  for (const double high : {1e5, 0.01}) {
    for (const float temperature : {0.0f, 1.0f}) {
      LocalEngineOptions options;
      options.draft_always = true;
      const auto engine = engine_with_levels(high, options);
      const auto prompt = prompt_of(*engine);
      const auto answer = [&](bool history) {
        std::promise<GenerationResult> done;
        GenerationRequest request = request_of(prompt, automatic());
        own<AutoOptions>(request.reuse).history = history;
        request.max_tokens = 80;  // more than are kept
        request.sampling.temperature = temperature;
        request.sampling.seed = 5;
        request.callbacks.on_finished = [&](GenerationResult result) { done.set_value(std::move(result)); };
        engine->submit(std::move(request));
        return done.get_future().get();
      };
      const GenerationResult plain = answer(false), measured = answer(true);
      CHECK(measured.tokens == plain.tokens);
      CHECK(measured.text == plain.text);
      CHECK(plain.tokens.size() >= 48);
      wait_for_probes(*engine);
      CHECK(observations(*engine, prompt).size() == 1);
    }
  }
}

TEST_CASE("probe: a long answer is measured while it is written", "[history]") {
  const auto engine = engine_with_levels(1e5);
  const auto prompt = prompt_of(*engine);
  GenerationRequest request = request_of(prompt, automatic());
  request.max_tokens = 400;
  std::promise<void> done;
  std::int64_t measured = 0;
  request.callbacks.on_token = [&](TokenId, const std::string&) { measured = engine->stats().measured_turns; };
  request.callbacks.on_finished = [&](const GenerationResult&) { done.set_value(); };
  engine->submit(std::move(request));
  done.get_future().get();
  CHECK(measured == 1);  // before its last token
  CHECK(engine->stats().measured_ms > 0.0);
  wait_for_probes(*engine);
  const auto found = observations(*engine, prompt);
  REQUIRE(found.size() == 1);  // and not once more at its end
  const Run turn = run(*engine, [&] {
    GenerationRequest same = request_of(prompt, automatic());
    same.max_tokens = 60;
    return same;
  }());
  const Run rectified = forced(*engine, prompt, rectify(), turn.result.tokens);
  CHECK(found[0].divergence == Approx(mean_divergence(turn, rectified, 24)));
}

TEST_CASE("probe: requests that run with probes have their own answers", "[history]") {
  const auto engine = engine_with_levels(1e5);
  const auto prompt = prompt_of(*engine);
  ReuseOptions unmeasured = automatic();
  own<AutoOptions>(unmeasured).history = false;
  const Run expected = run(*engine, request_of(prompt, unmeasured));
  for (int round = 0; round < 4; ++round) {
    std::vector<std::future<Run>> all;
    for (int i = 0; i < 6; ++i) {
      all.push_back(std::async(std::launch::async, [&, i] {
        GenerationRequest request = request_of(prompt, automatic());
        request.reader += std::to_string(i);
        return run(*engine, std::move(request));
      }));
    }
    for (auto& one : all) CHECK(same(one.get(), expected));
  }
  wait_for_probes(*engine);
}

TEST_CASE("probe: the engine closes with probes that wait, and requests can be cancelled at any time", "[history]") {
  for (int round = 0; round < 12; ++round) {
    const auto engine = engine_with_levels(round % 2 == 0 ? 1e5 : 0.01);
    const auto prompt = prompt_of(*engine);
    std::vector<std::future<GenerationResult>> all;
    std::vector<RequestId> ids;
    for (int i = 0; i < 5; ++i) {
      auto done = std::make_shared<std::promise<GenerationResult>>();
      all.push_back(done->get_future());
      GenerationRequest request = request_of(prompt, automatic());
      request.callbacks.on_finished = [done](GenerationResult result) { done->set_value(std::move(result)); };
      ids.push_back(engine->submit(std::move(request)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    engine->cancel(ids[static_cast<std::size_t>(round) % 5]);
    for (auto& one : all) CHECK(one.get().error.empty());
  }
}

TEST_CASE("probe: memory returns after many measured turns", "[history]") {
  const auto engine = engine_with_levels(1e5);
  std::int64_t segments = -1;
  for (int turn = 0; turn < 30; ++turn) {
    auto prompt = prompt_of(*engine, 7 + static_cast<std::uint64_t>(turn));
    std::vector<TokenId> ids = prompt[0].tokens;
    ids.front() = turn;  // a place of its own
    prompt[0].tokens = ids;
    measured_turn(*engine, prompt);
    prompt.clear();
    if (turn == 2) segments = engine->stats().segments.segments;
  }
  CHECK(engine->stats().kv_bytes == 0);
  CHECK(engine->stats().measuring == 0);
  CHECK(engine->stats().segments.segments == segments);
}

TEST_CASE("probe: without memory to spare nothing is measured, and requests are served", "[history]") {
  LocalEngineOptions options;
  const auto roomy = engine_with_levels(1e5);
  const auto wanted = run(*roomy, request_of(prompt_of(*roomy), automatic()));
  wait_for_probes(*roomy);
  options.kv_budget_bytes = roomy->stats().kv_peak_bytes * 3 / 2;
  options.segment_budget_bytes = std::int64_t{1} << 24;
  const auto engine = engine_with_levels(1e5, options);
  const auto prompt = prompt_of(*engine);
  CHECK(same(measured_turn(*engine, prompt), wanted));
  CHECK(observations(*engine, prompt).empty());
}

}  // namespace relay_probe_test
