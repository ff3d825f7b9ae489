// SPDX-License-Identifier: Apache-2.0
// Requests with a constraint: every answer that comes to an end is a text of the grammar, whatever else runs, drafts or
// is checked.
#include <catch2/catch.hpp>

#include "engine/base/errors.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/text/constrain/grammar.h"
#include "tests/support/asking.h"
#include "tests/support/tiny_engine.h"

namespace constrain_test {

using namespace baton;
using namespace baton::test;
using Catch::Contains;

namespace {

std::vector<std::shared_ptr<const Grammar>> grammars() {
  return {regex_grammar("[A-Z][a-z]{2,12}( [a-z]{1,8}){0,4}[.!]"),
          enum_grammar(std::vector<std::string>{"yes", "no", "neither of them"}),
          schema_grammar(R"({"properties": {"name": {"type": "string", "maxLength": 12}, "n": {"type": "integer"},
                             "list": {"type": "array", "items": {"type": "boolean"}, "maxItems": 4}},
                             "required": ["name", "list"]})"),
          gbnf_grammar("root ::= (\"ab\" | \"a\" [0-9]){3,20} \";\"")};
}

GenerationRequest request_for(const std::shared_ptr<const Grammar>& grammar, std::uint64_t seed) {
  GenerationRequest request;
  request.prompt = {{"", random_tokens(12 + seed * 3, seed)}};
  request.max_tokens = 200;
  request.constraint = grammar;
  if (seed % 3 != 0) request.sampling = {.temperature = 1.0f, .seed = seed};
  if (seed % 4 == 1) request.sampling.repetition_penalty = 1.3f;
  if (seed % 4 == 2) request.sampling.top_k = 3;
  if (seed % 5 == 3) request.sampling.top_p = 0.5f;
  return request;
}

}  // namespace

TEST_CASE("constrained answers are texts of their grammar, greedy and sampled", "[engine][constrain]") {
  const auto engine = tiny_engine();
  for (const auto& grammar : grammars()) {
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const GenerationResult result = result_of(*engine, request_for(grammar, seed)).get();
      CAPTURE(seed, result.text, result.error);
      CHECK(result.error.empty());
      CHECK(result.reason == FinishReason::eos);
      CHECK(accepts(*grammar, result.text));
      CHECK(engine->model().tokenizer->decode(result.tokens, true) == result.text);
    }
  }
}

TEST_CASE("a vocabulary whose reading was stopped is read by the next request", "[engine][constrain]") {
  const auto engine = tiny_engine();
  std::stop_source stopped;
  stopped.request_stop();
  CHECK_THROWS_AS(engine->read_vocabulary(stopped.get_token()), Interrupted);
  CHECK_THROWS_AS(engine->read_vocabulary(stopped.get_token()), Interrupted);
  const auto grammar = grammars().front();
  CHECK(accepts(*grammar, result_of(*engine, request_for(grammar, 0)).get().text));
  engine->read_vocabulary({});
  CHECK_NOTHROW(engine->read_vocabulary(stopped.get_token()));  // it is there
}

TEST_CASE("constrained answers do not depend on other requests, nor on drafts", "[engine][constrain]") {
  std::vector<std::vector<TokenId>> alone;
  const auto all = grammars();
  constexpr std::uint64_t kRequests = 16;
  const auto request = [&](std::uint64_t i) {
    GenerationRequest made = request_for(i % 5 == 4 ? nullptr : all[i % 4], i);
    made.max_tokens = 60;
    return made;
  };
  for (std::uint64_t i = 0; i < kRequests; ++i)
    alone.push_back(result_of(*tiny_engine({.max_draft = 0}), request(i)).get().tokens);
  std::int64_t drafted = 0, accepted = 0;
  for (const bool always : {false, true}) {
    const auto engine = tiny_engine({.max_sequences = 5, .draft_always = always});
    std::vector<std::future<GenerationResult>> futures;
    for (std::uint64_t i = 0; i < kRequests; ++i) futures.push_back(result_of(*engine, request(i)));
    for (std::uint64_t i = 0; i < kRequests; ++i) {
      const GenerationResult result = futures[i].get();
      INFO("request " << i << (always ? ", all drafts" : ""));
      CHECK(result.tokens == alone[i]);
      if (request(i).constraint == nullptr) continue;
      drafted += result.drafted_tokens;
      accepted += result.accepted_tokens;
    }
  }
  CHECK(drafted > 0);
  CHECK(accepted > 0);
}

TEST_CASE("verified: constrained answers are those of full", "[engine][constrain][verified]") {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, {.layers = 6});
  StepEngine engine(std::move(backend), std::move(weights), {});
  update_calibration(engine, [&](Calibration& now) { now.range = {1, 2, 4}; });
  ReuseOptions verified;
  verified.method = find_method("verified");
  verified.min_tokens = 8;
  verified.record = true;
  std::int64_t tentative = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    GenerationRequest author;
    author.prompt = {{"", random_tokens(20, seed)}};
    author.reuse = verified;
    author.output_readers = 1;
    author.forced = random_tokens(90, seed + 1000);
    PromptPart written{"answer", author.forced, nullptr, 0};
    written.segment = result_of(engine, std::move(author)).get().output;
    REQUIRE(written.segment);

    GenerationRequest request = request_for(grammars()[seed % 4], seed);
    request.prompt = {{"", random_tokens(30, seed + 2000)}, written, {"", random_tokens(6, seed + 3000)}};
    GenerationRequest plain = request;
    request.reuse = verified;
    const GenerationResult expected = result_of(engine, std::move(plain)).get();
    const GenerationResult found = result_of(engine, std::move(request)).get();
    CAPTURE(seed, expected.text);
    REQUIRE(found.error.empty());
    CHECK(found.tokens == expected.tokens);
    CHECK(found.reason == expected.reason);
    CHECK(accepts(*grammars()[seed % 4], found.text));
    tentative += found.tentative_tokens;
  }
  CHECK(tentative > 0);
}

TEST_CASE("where max_tokens ends a constrained answer, it is the beginning of one", "[engine][constrain]") {
  const auto engine = tiny_engine();
  const auto grammar = regex_grammar("[a-z]{30}!");
  GenerationRequest request = request_for(grammar, 1);
  request.max_tokens = 10;
  const GenerationResult cut = result_of(*engine, request).get();
  CHECK(cut.reason == FinishReason::length);
  CHECK(cut.tokens.size() == 10);
  CHECK_FALSE(accepts(*grammar, cut.text));
  CHECK(cut.text.find_first_not_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos);
  request.max_tokens = 31;  // the last token completes the answer
  CHECK(result_of(*engine, request).get().reason == FinishReason::eos);
}

TEST_CASE("forced answers and logits are as without a constraint", "[engine][constrain]") {
  const auto engine = tiny_engine();
  GenerationRequest request = request_for(grammars()[1], 2);
  request.forced = random_tokens(20, 5);
  CHECK(result_of(*engine, request).get().tokens == request.forced);

  const auto first_logits = [&](const std::shared_ptr<const Grammar>& grammar) {
    GenerationRequest one = request_for(grammar, 2);
    std::vector<float> first;
    one.callbacks.on_logits = [&](std::span<const float> logits) {
      if (first.empty()) first.assign(logits.begin(), logits.end());
    };
    one.max_tokens = 3;
    result_of(*engine, std::move(one)).get();
    return first;
  };
  CHECK(first_logits(grammars()[0]) == first_logits(nullptr));
}

TEST_CASE("what a constraint excludes is refused, and a vocabulary that cannot write it ends in an error",
          "[engine][constrain]") {
  GenerationRequest request = request_for(grammars()[0], 1);
  request.stop = {"x"};
  CHECK_THROWS_WITH(tiny_engine()->submit(request), Contains("a constraint excludes stop strings"));
  request.stop.clear();
  request.constraint = enum_grammar(std::vector<std::string>{"no", "not"});
  const auto engine = tiny_engine({}, {.eos_tokens = {257, 'o'}});
  const GenerationResult result = result_of(*engine, std::move(request)).get();
  CHECK(result.reason == FinishReason::error);
  CHECK_THAT(result.error, Contains("no token of the model's vocabulary continues the answer"));
}

}  // namespace constrain_test
