// SPDX-License-Identifier: Apache-2.0
// Prompts with answers that are handed over, asked of a tiny model: for tests of reuse through the engine.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <string_view>
#include <vector>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/rectify/rectify.h"
#include "tests/support/asking.h"
#include "tests/support/reuse_cases.h"
#include "tests/support/tiny_model.h"

namespace baton::test::reuse_prompts {

inline constexpr std::int32_t kLayers = 6;
inline constexpr LayerRange kRange{1, 2, kLayers - 2};

inline ReuseOptions method(std::string_view name, bool prefix = false) {
  ReuseOptions reuse;
  reuse.method = find_method(name);
  reuse.range = needs_group(*reuse.method) ? LayerRange::group(kRange.start, kRange.end) : kRange;
  own<RectifyOptions>(reuse).selection = {};
  reuse.min_tokens = 1;
  reuse.prefix = prefix;
  return reuse;
}

inline ReuseOptions recording(ReuseOptions reuse = method("full")) {
  reuse.record = true;
  return reuse;
}

inline std::shared_ptr<StepEngine> engine_of(TinyOptions model = {}, LocalEngineOptions options = {}) {
  model.layers = kLayers;
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), options);
}

/// Answers with three tokens, or as many as are asked for.
inline Run greedy(InferenceEngine& engine, std::vector<PromptPart> prompt, const ReuseOptions& reuse,
                  std::int32_t tokens = 3) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.max_tokens = tokens;
  return run(engine, std::move(request));
}

/// The answer of n given tokens to a prompt, as a part of later prompts.
inline PromptPart answer(InferenceEngine& engine, std::vector<PromptPart> prompt, std::size_t n, std::uint64_t seed,
                         const ReuseOptions& reuse = recording()) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.forced = random_tokens(n, seed);
  request.output_readers = 4;
  const Run made = run(engine, std::move(request));
  REQUIRE(made.result.output);
  REQUIRE(made.result.output->tokens == static_cast<std::int32_t>(n));
  return {"answer", made.result.tokens, made.result.output, 0};
}

/// What a method computes of {text(20, 3), an answer of 40 tokens, text(10, 4)}.
struct Computed {
  std::int64_t entries = 0;
  std::int64_t reused_tokens = 0;  // of the answer
  std::int64_t reusable = -1;      // entries of the answer that are not computed for every token; -1: the reused ones
};
inline void check_computed(const ReuseOptions& reuse, const Computed& expected) {
  const auto engine = engine_of();
  const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
  const GenerationResult result = greedy(*engine, {text(20, 3), part, text(10, 4)}, reuse).result;
  INFO(reuse.method->name << ", expected " << expected.entries);
  CHECK(result.kv_entries == 70 * kLayers);
  CHECK(result.kv_computed == expected.entries);
  REQUIRE(result.uses.size() == 3);
  CHECK(result.uses[1].kv_reused == result.kv_entries - expected.entries);
  CHECK(result.uses[0].kv_reused + result.uses[2].kv_reused == 0);
  CHECK(result.uses[0].kv_reusable + result.uses[2].kv_reusable == 0);
  CHECK(result.uses[1].kv_reusable == (expected.reusable >= 0 ? expected.reusable : result.uses[1].kv_reused));
  CHECK(result.uses[1].method == reuse.method);
  CHECK(result.uses[1].reason.empty());
  CHECK(result.uses[1].reused_tokens == expected.reused_tokens);
  CHECK(result.hops == (reuse.method == &full_method() ? 0 : 1));
}

/// Options that ask for 0.7 of the entries leave that, from two segments and in steps of any size.
inline void check_left(const ReuseOptions& reuse) {
  std::vector<Run> runs;
  for (const std::int32_t rows : {7, 512}) {
    const auto engine = engine_of({}, {.max_step_rows = rows});
    const PromptPart first = answer(*engine, {text(30, 1)}, 40, 2), second = answer(*engine, {text(11, 5)}, 27, 6);
    Run run = greedy(*engine, {text(20, 3), first, text(9, 7), second, text(10, 4)}, reuse);
    const auto left = static_cast<double>(run.result.uses[1].kv_reused + run.result.uses[3].kv_reused);
    INFO(reuse.method->name << " in steps of " << rows);
    CHECK(left >= 0.7 * 67 * kLayers);
    CHECK(left < 0.7 * 67 * kLayers + 2 * kLayers);  // rounded down, in each segment
    runs.push_back(std::move(run));
  }
  CHECK(same(runs[0], runs[1]));
}

/// Of options that recompute more and more, the last of which everything, each is closer to full prefill.
inline void check_ladder(const std::vector<ReuseOptions>& ladder) {
  const auto engine = engine_of({.kv_dtype = DType::f32});
  std::vector<double> errors(ladder.size());
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const PromptPart part = answer(*engine, {text(25, 10 * seed)}, 48, 10 * seed + 1);
    const std::vector<PromptPart> prompt = {text(19, 10 * seed + 2), part, text(6, 10 * seed + 3)};
    const Run full = greedy(*engine, prompt, method("full"), 1);
    for (std::size_t i = 0; i < ladder.size(); ++i) {
      const Run run = greedy(*engine, prompt, ladder[i], 1);
      double sum = 0;
      for (std::size_t at = 0; at < full.logits[0].size(); ++at)
        sum += std::abs(static_cast<double>(run.logits[0][at]) - full.logits[0][at]);
      errors[i] += sum / static_cast<double>(full.logits[0].size()) / 40;
    }
  }
  for (std::size_t i = 1; i < errors.size(); ++i) {
    INFO("step " << i << ": " << errors[i - 1] << ", then " << errors[i]);
    CHECK(errors[i] <= 1.03 * errors[i - 1]);
  }
  INFO("first " << errors.front());
  CHECK(errors.front() > 0.01);
  CHECK(errors.back() == 0.0);
}

/// The engine refuses a request with these options.
inline void check_refused(InferenceEngine& engine, const ReuseOptions& reuse, const std::string& message) {
  GenerationRequest request;
  request.prompt = {text(5, 1)};
  request.reuse = reuse;
  INFO(message);
  CHECK_THROWS_WITH(engine.submit(std::move(request)), Catch::Contains(message));
}

}  // namespace baton::test::reuse_prompts
