// SPDX-License-Identifier: Apache-2.0
// Asking an engine and looking at the logits.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <future>
#include <memory>

#include "engine/engine.h"
#include "tests/support/reuse_run.h"
#include "tests/support/tiny_model.h"

namespace baton::test {

inline PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed), nullptr, 0}; }

/// Without logits, so that the backend may choose the tokens.
inline std::future<GenerationResult> result_of(InferenceEngine& engine, GenerationRequest request) {
  auto promise = std::make_shared<std::promise<GenerationResult>>();
  auto future = promise->get_future();
  request.callbacks.on_finished = [promise](GenerationResult result) { promise->set_value(std::move(result)); };
  engine.submit(std::move(request));
  return future;
}

inline std::future<Run> start(InferenceEngine& engine, GenerationRequest request) {
  auto run = std::make_shared<Run>();
  auto promise = std::make_shared<std::promise<Run>>();
  request.callbacks.on_logits = [run](std::span<const float> logits) {
    run->logits.emplace_back(logits.begin(), logits.end());
  };
  request.callbacks.on_finished = [run, promise](GenerationResult result) {
    run->result = std::move(result);
    promise->set_value(std::move(*run));
  };
  engine.submit(std::move(request));
  return promise->get_future();
}

inline Run ask(InferenceEngine& engine, std::vector<PromptPart> prompt, const ReuseOptions& reuse,
               std::vector<TokenId> forced = {1, 2}) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.forced = std::move(forced);
  Run run = start(engine, std::move(request)).get();
  REQUIRE(run.result.error.empty());
  return run;
}

/// An answer of 30 tokens that prompts may hold, with all that any method wants of it.
inline PromptPart recorded_answer(InferenceEngine& engine, std::uint64_t seed) {
  GenerationRequest request;
  request.prompt = {text(20, seed)};
  request.reuse.record = true;
  request.reuse.range = {1, 2, 3};
  request.reuse.prefix = false;
  request.output_readers = 20;
  request.forced = random_tokens(30, seed + 50);
  const std::vector<TokenId> tokens = request.forced;
  Run run = start(engine, std::move(request)).get();
  REQUIRE(run.result.output);
  return {"answer", tokens, run.result.output, 0};
}

inline double distance(const Run& a, const Run& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.logits.size(); ++i) {
    for (std::size_t j = 0; j < a.logits[i].size(); ++j) sum += std::pow(a.logits[i][j] - b.logits[i][j], 2);
  }
  return std::sqrt(sum);
}

}  // namespace baton::test
