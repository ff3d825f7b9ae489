// SPDX-License-Identifier: Apache-2.0
// The engine on the CUDA backend: answers recorded, segments placed, methods scheduled, detected and recomputed.
#include <catch2/catch.hpp>
#include <cmath>
#include <future>
#include <random>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/anchors/anchors.h"
#include "engine/reuse/lab/cacheblend/cacheblend.h"
#include "engine/reuse/rectify/corrections.h"
#include "engine/reuse/rectify/rectify.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/asking.h"
#include "tests/support/tiny_model.h"

namespace baton::test::engine_test {
namespace {

constexpr std::int32_t kLayers = 6;

std::shared_ptr<StepEngine> engine_on(std::unique_ptr<Backend> backend, const TinyOptions& model,
                                      const LocalEngineOptions& options = {}) {
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), options);
}

struct Answer {
  GenerationResult result;
  std::vector<float> logits;  // of the first token
};

Answer respond(InferenceEngine& engine, GenerationRequest request) {
  Answer answer;
  std::promise<GenerationResult> promise;
  request.callbacks.on_logits = [&](std::span<const float> logits) {
    if (answer.logits.empty()) answer.logits.assign(logits.begin(), logits.end());
  };
  request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
  engine.submit(std::move(request));
  answer.result = promise.get_future().get();
  REQUIRE(answer.result.error.empty());
  return answer;
}

/// One agent answers, the next one's prompt holds the answer; by each method. Logits of the second agent's first token.
std::vector<Answer> relay(InferenceEngine& engine, bool exact_choices) {
  std::vector<Answer> answers;
  GenerationRequest first;
  first.prompt = {{"", random_tokens(45, 1), nullptr, 0}};
  first.reuse.record = true;
  first.output_readers = static_cast<std::int64_t>(methods().size());
  first.forced = random_tokens(30, 2);
  const Answer upstream = respond(engine, std::move(first));
  REQUIRE(upstream.result.output);
  for (const Method* each : methods()) {
    const Method& method = *each;
    if (computes_ahead(method)) continue;  // rows ahead: other tests
    GenerationRequest second;
    second.prompt = {{"", random_tokens(33, 3), nullptr, 0},
                     {"answer", upstream.result.tokens, upstream.result.output, 0},
                     {"", random_tokens(12, 4), nullptr, 0}};
    second.reuse.method = &method;
    second.reuse.min_tokens = 1;
    second.reuse.range = {1, 2, kLayers - 2};
    if (needs_group(method)) second.reuse.range = LayerRange::group(1, kLayers - 2);
    // Which tokens are chosen hangs on the last bits.
    if (method.name == "rectify") own<RectifyOptions>(second.reuse).selection.all = !exact_choices;
    if (method.name == "cacheblend" && !exact_choices) own<CacheblendOptions>(second.reuse).share = 1.0;
    second.max_tokens = 2;
    answers.push_back(respond(engine, std::move(second)));
  }
  return answers;
}

TEST_CASE("an engine on the kernels relays answers as the CPU does, by every method", "[engine]") {
  struct Case {
    TinyOptions model;
    double tolerance;
    bool exact_choices;
  };
  const Case cases[] = {
      {{.layers = kLayers, .dtype = DType::f32, .kv_dtype = DType::f32}, 1e-4, true},
      {{.layers = kLayers, .heads = 6, .kv_heads = 2, .head_dim = 32, .qk_norm = true}, 0.05, false},
  };
  for (const Case& c : cases) {
    auto backend = make_backend_under_test();
    if (backend == nullptr) return;
    const auto cuda = engine_on(std::move(backend), c.model);
    const auto cpu = engine_on(make_cpu_backend(1), c.model);
    const auto actual = relay(*cuda, c.exact_choices), expected = relay(*cpu, c.exact_choices);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      INFO(name_of(c.model.dtype) << ", run " << i << ": " << actual[i].result.uses[1].method->name);
      CHECK(actual[i].result.uses[1].method == expected[i].result.uses[1].method);
      CHECK(actual[i].result.uses[1].kv_reused == expected[i].result.uses[1].kv_reused);
      CHECK(difference(actual[i].logits, expected[i].logits) < c.tolerance);
    }
  }
}

TEST_CASE("a forced answer runs in few steps, though answers are not drafted on a device", "[engine]") {
  std::vector<Run> runs;
  std::vector<std::int64_t> steps;
  for (const bool token_by_token : {true, false}) {
    auto backend = make_backend_under_test();
    if (backend == nullptr) return;
    const auto engine = engine_on(std::move(backend), {.dtype = DType::f32, .kv_dtype = DType::f32},
                                  {.token_by_token = token_by_token});
    GenerationRequest request;
    request.prompt = {text(20, 7)};
    request.forced = random_tokens(40, 3);
    runs.push_back(start(*engine, std::move(request)).get());
    steps.push_back(engine->stats().steps);
  }
  CHECK(steps[0] >= 41);
  CHECK(steps[1] <= 4);
  CHECK(runs[0].result.tokens == runs[1].result.tokens);
  REQUIRE(runs[0].logits.size() == runs[1].logits.size());
  CHECK(distance(runs[0], runs[1]) < 1e-3);
}

/// Role text, an answer that was decoded elsewhere, text.
std::vector<PromptPart> prompt_with_answer(InferenceEngine& engine, std::uint64_t seed, const ReuseOptions& reuse) {
  GenerationRequest request;
  request.prompt = {text(20, 7)};
  request.reuse = reuse;
  request.output_readers = 4;
  request.output_slot = "answer";
  request.forced = random_tokens(40, seed);
  const std::vector<TokenId> tokens = request.forced;
  const Run made = start(engine, std::move(request)).get();
  REQUIRE(made.result.output);
  return {text(10, 1), {"answer", tokens, made.result.output, 0}, text(6, 2)};
}

// Offsets are kept in bf16: one that lies between two of its numbers is rounded either way (seen: 2e-4). Corrections
// are products of three bf16 factors on a device, and of two on the CPU.
constexpr double kOffsetTolerance = 1e-3, kCorrectionTolerance = 5e-3;

/// The same questions of both engines, which then say the same.
class Pair {
 public:
  Pair(std::unique_ptr<Backend> backend, const TinyOptions& model)
      : device_(engine_on(std::move(backend), model)), cpu_(engine_on(make_cpu_backend(1), model)) {}

  Run ask_both(std::uint64_t answer, const ReuseOptions& reuse, double tolerance = kOffsetTolerance) {
    const Run theirs = ask(*cpu_, prompt_with_answer(*cpu_, answer, reuse), reuse);
    const Run ours = ask(*device_, prompt_with_answer(*device_, answer, reuse), reuse);
    CHECK(ours.result.uses[1].method == theirs.result.uses[1].method);
    CHECK(ours.result.uses[1].corrected == theirs.result.uses[1].corrected);
    CHECK(ours.result.kv_computed == theirs.result.kv_computed);
    for (std::size_t i = 0; i < theirs.logits.size(); ++i)
      CHECK(difference(ours.logits[i], theirs.logits[i]) < tolerance);
    return ours;
  }
  LocalEngine& device() { return *device_; }
  LocalEngine& cpu() { return *cpu_; }

 private:
  std::shared_ptr<StepEngine> device_, cpu_;
};

const TinyOptions kExact{.layers = kLayers, .dtype = DType::f32, .kv_dtype = DType::f32};

TEST_CASE("anchors on the kernels correct as on the CPU", "[engine]") {
  auto backend = make_backend_under_test();
  if (backend == nullptr) return;
  Pair pair(std::move(backend), kExact);
  ReuseOptions reuse;
  reuse.method = find_method("anchors");
  reuse.min_tokens = 1;
  reuse.prefix = false;
  reuse.record = true;
  own<AnchorOptions>(reuse).gate = AnchorOptions::Gate::none;
  own<AnchorOptions>(reuse).check = 0;
  CHECK(pair.ask_both(11, reuse).result.uses[1].reason == "the pool has no anchor yet");
  CHECK(pair.ask_both(11, reuse).result.uses[1].method->name == "anchors");  // copied when it was needed, or before
  CHECK(pair.ask_both(12, reuse).result.kv_computed < 56 * kLayers);
  own<AnchorOptions>(reuse).text = AnchorOptions::Text::offset;
  pair.ask_both(13, reuse);
  own<AnchorOptions>(reuse).offsets = AnchorOptions::Offsets::nearest;
  pair.ask_both(14, reuse);
}

TEST_CASE("learned corrections on the kernels are those of the CPU", "[engine]") {
  auto backend = make_backend_under_test();
  if (backend == nullptr) return;
  Pair pair(std::move(backend), kExact);
  ReuseOptions reuse;
  reuse.method = find_method("rectify");
  reuse.min_tokens = 1;
  reuse.prefix = false;
  reuse.record = true;
  reuse.range = {1, 2, kLayers - 2};
  own<RectifyOptions>(reuse).selection.all = true;
  const Run plain = pair.ask_both(11, reuse);
  CHECK_FALSE(plain.result.uses[1].corrected);
  LinearCorrection map;
  map.shape.of.assign(kLayers, 2 * 16);
  map.rank = 3;
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 0.1f);
  const auto fill = [&](std::int64_t count) {
    std::vector<std::uint16_t> bits(static_cast<std::size_t>(count));
    for (std::uint16_t& value : bits) value = f32_to_bf16(normal(random));
    return bits;
  };
  map.encoder = fill(map.rank * map.inputs());
  map.decoder = fill(map.outputs() * map.rank);
  map.bias.resize(static_cast<std::size_t>(map.outputs()));
  for (float& value : map.bias) value = normal(random);
  std::vector<PromptPart> prompt = {text(10, 1), {"answer", random_tokens(40, 11), nullptr, 0}, text(6, 2)};
  const PlaceKey place = places_of(prompt, {})[1];
  for (LocalEngine* engine : {&pair.device(), &pair.cpu()}) {
    Corrections all;
    all[{place.context, place.slot, {}}] = std::make_shared<const LinearCorrection>(map);
    update_calibration(
        *engine, [&](Calibration& now) { now.corrections = std::make_shared<const Corrections>(std::move(all)); });
  }
  const Run corrected = pair.ask_both(11, reuse, kCorrectionTolerance);
  CHECK(corrected.result.uses[1].corrected);
  CHECK(difference(corrected.logits[0], plain.logits[0]) > 10 * kCorrectionTolerance);
}

}  // namespace
}  // namespace baton::test::engine_test
