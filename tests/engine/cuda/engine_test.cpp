// The engine on the CUDA backend: answers recorded, segments placed, methods scheduled, detected and recomputed.
#include "engine/local_engine.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <future>

#include "engine/cpu/cpu.h"
#include "tests/engine/cuda/models.h"
#include "tests/support/tiny_model.h"

namespace baton::test {
namespace {

constexpr std::int32_t kLayers = 6;

std::shared_ptr<LocalEngine> engine_on(std::unique_ptr<Backend> backend, const TinyOptions& options) {
  auto weights = make_tiny_model(*backend, options);
  return std::make_shared<LocalEngine>(std::move(backend), std::move(weights), EngineOptions{});
}

struct Answer {
  GenerationResult result;
  std::vector<float> logits;  // of the first token
};

Answer ask(Engine& engine, GenerationRequest request) {
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
std::vector<Answer> relay(Engine& engine, bool exact_choices) {
  std::vector<Answer> answers;
  GenerationRequest first;
  first.prompt = {{"", random_tokens(45, 1), nullptr, 0}};
  first.reuse.record = true;
  first.output_readers = static_cast<std::int64_t>(reuse_methods().size());
  first.forced = random_tokens(30, 2);
  const Answer upstream = ask(engine, std::move(first));
  REQUIRE(upstream.result.output);
  for (const std::string& method : reuse_methods()) {
    if (method == "lockstep") continue;  // rows ahead: other tests
    GenerationRequest second;
    second.prompt = {{"", random_tokens(33, 3), nullptr, 0},
                     {"answer", upstream.result.tokens, upstream.result.output, 0},
                     {"", random_tokens(12, 4), nullptr, 0}};
    second.reuse.method = method;
    second.reuse.min_tokens = 1;
    second.reuse.range = {1, 2, kLayers - 2};
    second.reuse.selection.all = !exact_choices;  // which tokens are chosen hangs on the last bits
    if (!exact_choices) second.reuse.cacheblend_share = 1.0;
    second.max_tokens = 2;
    answers.push_back(ask(engine, std::move(second)));
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
      INFO(name_of(c.model.dtype) << ", run " << i << ": " << actual[i].result.uses[1].method);
      CHECK(actual[i].result.uses[1].method == expected[i].result.uses[1].method);
      CHECK(actual[i].result.uses[1].kv_reused == expected[i].result.uses[1].kv_reused);
      CHECK(difference(actual[i].logits, expected[i].logits) < c.tolerance);
    }
  }
}

}  // namespace
}  // namespace baton::test
