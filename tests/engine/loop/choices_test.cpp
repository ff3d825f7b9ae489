// SPDX-License-Identifier: Apache-2.0
// Requests with choices: the probabilities are those of each choice as a forced answer, whatever else runs, and the
// answer is the most probable one, as if it had been decoded.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "engine/base/errors.h"
#include "engine/loop/answer_writer.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/decision.h"
#include "engine/reuse/lab/lab_methods.h"
#include "engine/text/constrain/grammar.h"
#include "tests/support/asking.h"
#include "tests/support/tiny_engine.h"

namespace choices_test {

using namespace baton;
using namespace baton::test;
using Catch::Contains;

namespace {

using Choices = std::vector<std::vector<TokenId>>;

GenerationRequest request_for(std::vector<TokenId> prompt, Choices choices) {
  GenerationRequest request;
  request.prompt = {{"", std::move(prompt)}};
  request.choices = std::move(choices);
  request.reuse.method = &full_method();
  return request;
}

double log_probability(std::span<const float> logits, TokenId id) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return static_cast<double>(logits[static_cast<std::size_t>(id)]) - std::log(sum);
}

/// From one forced run for each choice. `ends`: the choices whose end counts.
std::vector<double> expected(InferenceEngine& engine, const std::vector<TokenId>& prompt, const Choices& choices,
                             const std::vector<bool>& ends) {
  std::vector<double> parts;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    auto request = request_for(prompt, {});
    request.forced = choices[i];
    std::vector<TokenId> next = choices[i];
    if (ends[i]) next.push_back(257);
    double score = 0.0;
    request.callbacks.on_logits = [&, at = std::size_t{0}](std::span<const float> logits) mutable {
      if (at < next.size()) score += log_probability(logits, next[at++]);
    };
    result_of(engine, request).get();
    parts.push_back(std::exp(score));
  }
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part /= sum;
  return parts;
}

void check_close(const std::vector<double>& found, const std::vector<double>& wanted) {
  REQUIRE(found.size() == wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == Approx(wanted[i]).epsilon(1e-6));
}

struct Case {
  Choices choices;
  std::vector<bool> ends;
};

std::vector<Case> cases() {
  return {{{{10}, {20}, {30}}, {false, false, false}},
          {{{40, 41, 42}}, {false}},
          {{{10, 11}, {10, 12, 13}, {77}}, {false, false, false}},
          {{{49}, {49, 48}, {50}, {49, 48, 48}}, {true, true, false, false}},
          {{random_tokens(70, 1), random_tokens(45, 2), {5}}, {false, false, false}}};
}

}  // namespace

TEST_CASE("choices have the probabilities of forced answers, and the best is the answer", "[engine][choices]") {
  const auto engine = tiny_engine();
  const auto token_by_token = tiny_engine({.max_draft = 0});
  std::uint64_t seed = 0;
  for (const Case& one : cases()) {
    const std::vector<TokenId> prompt = random_tokens(30, ++seed);
    const std::vector<double> wanted = expected(*engine, prompt, one.choices, one.ends);
    CAPTURE(seed);
    for (const auto& each : {engine, token_by_token}) {
      auto request = request_for(prompt, one.choices);
      request.sampling = {.temperature = 1.0f, .seed = seed};
      request.max_tokens = 1;
      request.stop = {"a"};
      std::vector<TokenId> tokens;
      std::string text;
      request.callbacks.on_token = [&](TokenId id, const std::string& piece) {
        tokens.push_back(id);
        text += piece;
      };
      const GenerationResult result = result_of(*each, request).get();
      CHECK(result.error.empty());
      CHECK(result.reason == FinishReason::eos);
      check_close(result.choices, wanted);
      const auto best = static_cast<std::size_t>(std::max_element(wanted.begin(), wanted.end()) - wanted.begin());
      CHECK(result.tokens == one.choices[best]);
      CHECK(tokens == one.choices[best]);
      CHECK(result.text.starts_with(text));
      CHECK(result.kv_computed == result.kv_entries);
    }
  }
}

TEST_CASE("choices are the same bit for bit concurrently with other requests, from a prefix and computed ahead",
          "[engine][choices]") {
  const Case one = cases()[4];
  const std::vector<TokenId> prompt = random_tokens(120, 9);
  const GenerationResult alone = result_of(*tiny_engine(), request_for(prompt, one.choices)).get();

  SECTION("other requests") {
    const auto engine = tiny_engine();
    std::vector<std::future<GenerationResult>> others, same;
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto other = request_for(random_tokens(50 + i, i), {});
      other.max_tokens = 60;
      others.push_back(result_of(*engine, other));
      same.push_back(result_of(*engine, request_for(prompt, one.choices)));
    }
    for (auto& future : same) {
      const GenerationResult result = future.get();
      CHECK(result.choices == alone.choices);
      CHECK(result.tokens == alone.tokens);
    }
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto other = request_for(random_tokens(50 + i, i), {});
      other.max_tokens = 60;
      CHECK(others[i].get().tokens == result_of(*tiny_engine(), other).get().tokens);
    }
  }
  SECTION("a prefix, which the choices have not changed") {
    const auto engine = tiny_engine();
    for (int i = 0; i < 2; ++i) {
      auto request = request_for(prompt, one.choices);
      request.reuse.method = &prefix_method();
      const GenerationResult result = result_of(*engine, request).get();
      CHECK(result.choices == alone.choices);
      CHECK((result.kv_computed < result.kv_entries) == (i == 1));
    }
    std::vector<TokenId> longer = prompt;
    longer.insert(longer.end(), alone.tokens.begin(), alone.tokens.end());
    for (const TokenId id : random_tokens(20, 3)) longer.push_back(id);
    auto request = request_for(longer, {});
    request.max_tokens = 20;
    const std::vector<TokenId> tokens = result_of(*tiny_engine(), request).get().tokens;
    request.reuse.method = &prefix_method();
    CHECK(result_of(*engine, request).get().tokens == tokens);
  }
  SECTION("computed ahead") {
    const auto engine = tiny_engine();
    auto request = request_for(prompt, one.choices);
    request.reuse.method = &lockstep_method();
    request.early = engine->prepare({{{prompt}}, true, 300, request.reuse});
    CHECK(result_of(*engine, request).get().choices == alone.choices);
  }
}

TEST_CASE("verified choices are scored on exact KV", "[engine][choices]") {
  const auto engine = tiny_engine({.min_tentative_rows = 1});
  update_calibration(*engine, [&](Calibration& now) { now.range = {0, 1, 2}; });
  auto author = request_for(random_tokens(20, 1), {});
  author.forced = random_tokens(90, 2);
  author.reuse.record = true;
  author.output_readers = 1;
  const GenerationResult written = result_of(*engine, author).get();
  REQUIRE(written.output != nullptr);

  auto reader = request_for(random_tokens(10, 3), cases()[3].choices);
  reader.prompt.push_back({"answer", author.forced, written.output, 0});
  reader.prompt.push_back({"", random_tokens(10, 4)});
  const GenerationResult full = result_of(*engine, reader).get();
  reader.reuse.method = &direct_method();
  const GenerationResult direct = result_of(*engine, reader).get();
  CHECK(direct.hops == 1);
  CHECK(direct.choices != full.choices);
  reader.reuse.method = find_method("verified");
  const GenerationResult verified = result_of(*engine, reader).get();
  CHECK(verified.choices == full.choices);
  CHECK(verified.tokens == full.tokens);
}

TEST_CASE("a chosen answer is handed on like a decoded one", "[engine][choices]") {
  const auto engine = tiny_engine();
  auto author = request_for(random_tokens(20, 1), {random_tokens(40, 6), random_tokens(45, 7)});
  author.reuse.record = true;
  author.output_readers = 1;
  const GenerationResult chosen = result_of(*engine, author).get();
  REQUIRE(chosen.output != nullptr);
  author.choices.clear();
  author.forced = chosen.tokens;
  const GenerationResult forced = result_of(*engine, author).get();
  for (GenerationResult const* result : {&chosen, &forced}) CHECK(result->hops == 0);
  const auto read = [&](const SegmentHandle& output) {
    auto reader = request_for(random_tokens(10, 3), {});
    reader.prompt.push_back({"answer", chosen.tokens, output, 0});
    reader.prompt.push_back({"", random_tokens(10, 4)});
    reader.reuse.method = &direct_method();
    reader.max_tokens = 20;
    std::vector<float> rows;
    reader.callbacks.on_logits = [&](std::span<const float> logits) {
      rows.insert(rows.end(), logits.begin(), logits.end());
    };
    CHECK(result_of(*engine, reader).get().hops == 1);
    return rows;
  };
  CHECK(read(chosen.output) == read(forced.output));
}

TEST_CASE("what the choices attend to is not in the record of attention received", "[engine][choices]") {
  const std::int32_t max_draft = GENERATE(0, 11);
  const auto engine = tiny_engine({.max_draft = max_draft});
  auto author = request_for(random_tokens(40, 1), {random_tokens(40, 6), random_tokens(45, 7)});
  author.prompt.push_back({"", random_tokens(6, 2)});
  author.prompt[0].readers = 1;
  author.reuse.record = true;
  author.output_readers = 1;
  const GenerationResult chosen = result_of(*engine, author).get();
  author.choices.clear();
  author.forced = chosen.tokens;
  const GenerationResult forced = result_of(*engine, author).get();
  const auto compare = [&](const SegmentHandle& of_choice, const SegmentHandle& of_forced) {
    REQUIRE(of_choice != nullptr);
    REQUIRE(of_forced != nullptr);
    const auto found = engine->segment(of_choice), wanted = engine->segment(of_forced);
    CHECK(found->received().size() == static_cast<std::size_t>(of_choice->tokens));
    CHECK(std::ranges::equal(found->received(), wanted->received()));
  };
  compare(chosen.segments.at(0), forced.segments.at(0));
  compare(chosen.output, forced.output);
}

TEST_CASE("a request with choices is cancelled at any point", "[engine][choices]") {
  const auto engine = tiny_engine({.max_draft = 0});
  for (int i = 0; i < 40; ++i) {
    std::promise<GenerationResult> promise;
    auto request = request_for(random_tokens(40, 1), cases()[4].choices);
    request.callbacks.on_finished = [&](GenerationResult result) { promise.set_value(std::move(result)); };
    const RequestId id = engine->submit(request);
    std::this_thread::sleep_for(std::chrono::microseconds(i * 100));
    engine->cancel(id);
    const GenerationResult result = promise.get_future().get();
    CHECK((result.reason == FinishReason::cancelled || result.reason == FinishReason::eos));
    CHECK(result.choices.empty() == result.tokens.empty());
  }
  CHECK(engine->stats().kv_bytes == 0);
}

TEST_CASE("choices that cannot be scored are refused", "[engine][choices]") {
  const auto engine = tiny_engine();
  CHECK_THROWS_WITH(engine->submit(request_for({1}, {{1}, {}})), Contains("at least 1 token in each"));
  CHECK_THROWS_WITH(engine->submit(request_for({1}, {{258}})), Contains("outside the vocabulary"));
  CHECK_THROWS_WITH(engine->submit(request_for({1}, {std::vector<TokenId>(511, 1)})),
                    Contains("the prompt has 1 tokens and a choice 511; the context of 512 leaves room for 510"));
  auto both = request_for({1}, {{1}});
  both.constraint = regex_grammar("a");
  CHECK_THROWS_WITH(engine->submit(both), Contains("choices exclude a constraint"));
}

TEST_CASE("choices: the decision is the best choice, and by how much it leads", "[engine][choices]") {
  const auto scored = [](const Choices& choices, std::vector<float> logits) {
    ChoiceScores scores(choices, {});
    while (!scores.begun() || !scores.running().empty()) scores.take(logits);
    return scores.decision();
  };
  const auto one = scored({{0}, {1}, {2}}, {1.0f, 3.5f, 2.0f});
  REQUIRE(one);
  CHECK(one->best == 1);
  CHECK(one->gap == Approx(1.5));
  CHECK(one->tokens == 1);
  const auto longer = scored({{0, 1, 1}, {2, 2}}, {0.0f, 1.0f, 0.5f});
  REQUIRE(longer);
  CHECK(longer->best == 1);  // fewer tokens lose less
  CHECK(longer->tokens == 3);
  const auto first = scored({{1}, {0}}, {2.0f, 2.0f});
  REQUIRE(first);
  CHECK(first->best == 0);
  CHECK(first->gap == 0.0);
  CHECK_FALSE(scored({{0}}, {1.0f, 2.0f}));
  ChoiceScores again({{0}, {1}}, {});
  again.take(std::vector<float>{0.0f, 1.0f});
  again.restart();
  CHECK_FALSE(again.begun());
  again.take(std::vector<float>{5.0f, 1.0f});
  CHECK(again.decision()->best == 0);
}

TEST_CASE("near ties: the margin grows with the root of the divergence and of the tokens", "[reuse][auto][decisions]") {
  ReuseDecision decision;
  CHECK(near_tie(decision, 0.02f, 1) == 0.0);  // without a factor every decision stands
  decision.tie_factor = 2.0f;
  CHECK(near_tie(decision, 0.02f, 1) == Approx(0.4));
  CHECK(near_tie(decision, 0.02f, 4) == Approx(0.8));
  CHECK(near_tie(decision, 0.0f, 1) == 0.0);
  CHECK(near_tie(decision, -1.0f, 1) == HUGE_VAL);
  decision.exact = true;
  CHECK(near_tie(decision, 0.02f, 1) == 0.0);
}

TEST_CASE("scores are finite where no choice is possible", "[engine][choices]") {
  ChoiceScores scores({{0}, {1}}, {});
  CHECK(scores.take(std::vector<float>{-INFINITY, NAN, 0.0f}));
  CHECK(scores.running().empty());
  CHECK(scores.probabilities() == std::vector<double>{0.5, 0.5});
  CHECK(scores.best() == std::vector<TokenId>{0});
  CHECK_THROWS_WITH(ChoiceScores({{0}}, {}).take(std::vector<float>{NAN}), Contains("finite"));
}

}  // namespace choices_test
