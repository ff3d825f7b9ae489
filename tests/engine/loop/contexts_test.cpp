// SPDX-License-Identifier: Apache-2.0
// Prompts that continue a kept context: their KV is that of one long sequence, bit for bit.
#include "engine/loop/kv_lookup.h"
#include "engine/registry.h"

#include <catch2/catch.hpp>

#include "tests/support/reuse_cases.h"
#include "tests/support/reuse_run.h"
#include "tests/support/tiny_engine.h"

namespace contexts_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr std::int32_t kLayers = 4;

ReuseOptions method(std::string_view name) {
  ReuseOptions reuse;
  reuse.method = find_method(name);
  reuse.min_tokens = 1;
  return reuse;
}

PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed), nullptr, 0}; }

std::shared_ptr<StepEngine> engine_of(TinyOptions model = {}, const LocalEngineOptions& options = {}) {
  model.layers = kLayers;
  return tiny_engine(options, model);
}

/// An answer of the given tokens, with its context.
Run ask(InferenceEngine& engine, std::vector<PromptPart> prompt, const ReuseOptions& reuse, std::vector<TokenId> forced,
        ContextHandle context = nullptr) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.forced = std::move(forced);
  request.context = std::move(context);
  request.keep_context = true;
  return run(engine, std::move(request));
}

/// The answer of an agent whose own prompt is elsewhere, as a part of later prompts.
PromptPart answer(InferenceEngine& engine, std::size_t n, std::uint64_t seed) {
  GenerationRequest request;
  request.prompt = {text(20, seed)};
  request.reuse = method("full");
  request.reuse.record = true;
  request.forced = random_tokens(n, seed + 1);
  request.output_readers = 20;
  const Run made = run(engine, std::move(request));
  REQUIRE(made.result.output);
  return {"answer", made.result.tokens, made.result.output, 0};
}

std::vector<PromptPart> operator+(std::vector<PromptPart> a, const std::vector<PromptPart>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// The last `n` logits of one run are those of the other.
bool same_end(const Run& a, const Run& b, std::size_t n) {
  return a.logits.size() >= n && b.logits.size() >= n &&
         std::equal(a.logits.end() - static_cast<std::ptrdiff_t>(n), a.logits.end(),
                    b.logits.end() - static_cast<std::ptrdiff_t>(n));
}

}  // namespace

TEST_CASE("contexts: thirty turns compute their new tokens only, and are full prefill bit for bit",
          "[engine][contexts]") {
  for (const TinyOptions& model : kModels) {
    for (const char* name : {"prefix", "lockstep", "rectify"}) {
      INFO(name);
      const auto engine = engine_of(model);
      ReuseOptions reuse = method(name);
      reuse.range = {0, 1, 3};
      std::vector<PromptPart> prompt = {text(25, 1)};
      ContextHandle context;
      for (std::uint64_t turn = 0; turn < 30; ++turn) {
        const std::vector<TokenId> said = random_tokens(5 + turn % 3, 100 + turn);
        const Run run = ask(*engine, prompt, reuse, said, context);
        const Run full = ask(*engine, prompt, method("full"), said);
        CHECK(same(run, full));
        REQUIRE(run.result.context);
        const auto known = context ? static_cast<std::int64_t>(context->tokens.size()) : 0;
        CHECK(run.result.kv_computed == (run.result.prompt_tokens - known) * kLayers);
        CHECK(run.result.hops == 0);
        context = run.result.context;
        CHECK(context->exact == static_cast<std::int32_t>(context->tokens.size()));
        prompt = prompt + std::vector<PromptPart>{{"", said}, text(7, 200 + turn)};
      }
    }
  }
}

TEST_CASE("contexts: approximate KV stays what it was", "[engine][contexts]") {
  for (const TinyOptions& model : kModels) {
    const auto engine = engine_of(model);
    const std::vector<PromptPart> begin = {text(20, 1), answer(*engine, 40, 2), text(6, 3)};
    const std::vector<TokenId> said = random_tokens(9, 4), next = random_tokens(8, 5), last = random_tokens(3, 6);
    const Run first = ask(*engine, begin, method("direct"), said);
    CHECK(first.result.hops == 1);
    REQUIRE(first.result.context);
    CHECK(first.result.context->exact == 20);
    CHECK(first.result.context->hops == 1);

    // One sequence with the same tokens.
    const Run whole = ask(*engine, begin, method("direct"), said + next + last);
    const std::vector<PromptPart> prompt = begin + std::vector<PromptPart>{{"", said}, {"", next}};
    const Run continued = ask(*engine, prompt, method("direct"), last, first.result.context);
    CHECK(same_end(continued, whole, last.size()));
    CHECK(continued.result.continued_tokens == static_cast<std::int64_t>(first.result.context->tokens.size()));
    CHECK(continued.result.hops == 1);
    CHECK(continued.result.context->exact == 20);
    const Run anew = ask(*engine, prompt, method("direct"), last);  // without it, what the first turn computed is gone
    CHECK(anew.result.continued_tokens == 20);
    CHECK(anew.result.kv_computed > continued.result.kv_computed);

    const Run exact = ask(*engine, prompt, method("prefix"), last, first.result.context);
    const Run full = ask(*engine, prompt, method("full"), last, first.result.context);
    CHECK(same(exact, full));
    // As Gemma 4 or 3n with four layers, only the KV of layer 1 depends on other tokens, and its window has passed the
    // text.
    CHECK(same(continued, full) == (model.gemma4 || model.gemma3n));
    CHECK(full.result.continued_tokens == 0);
    CHECK(full.result.kv_computed == full.result.kv_entries);
  }
}

TEST_CASE("contexts: two turns may continue one, from any point of it", "[engine][contexts]") {
  const auto engine = engine_of();
  const std::vector<PromptPart> begin = {text(20, 1), answer(*engine, 40, 2), text(6, 3)};
  const std::vector<TokenId> said = random_tokens(12, 4), last = random_tokens(3, 6);
  const Run first = ask(*engine, begin, method("direct"), said);
  for (std::size_t kept = 0; kept <= said.size(); ++kept) {
    const std::vector<TokenId> half(said.begin(), said.begin() + static_cast<std::ptrdiff_t>(kept));
    const std::vector<TokenId> next = random_tokens(8, 50 + kept);
    const Run whole = ask(*engine, begin, method("direct"), half + next + last);
    const std::vector<PromptPart> prompt = begin + std::vector<PromptPart>{{"", half + next}};
    const Run continued = ask(*engine, prompt, method("direct"), last, first.result.context);
    CHECK(same_end(continued, whole, last.size()));
    CHECK(continued.result.continued_tokens ==
          static_cast<std::int64_t>(std::min(66 + kept, first.result.context->tokens.size())));
  }
}

TEST_CASE("contexts: they are freed when nobody holds them", "[engine][contexts]") {
  const auto engine = engine_of();
  ReuseOptions reuse = method("direct");
  reuse.prefix = false;
  const std::int64_t before = engine->stats().segments.bytes;
  {
    Run first = ask(*engine, {text(50, 1)}, reuse, random_tokens(9, 4));
    const std::int64_t with_first = engine->stats().segments.bytes;
    CHECK(with_first > before);
    const std::vector<PromptPart> next = {text(50, 1), {"", first.result.tokens}, text(5, 2)};
    const Run second = ask(*engine, next, reuse, random_tokens(3, 5), first.result.context);
    const std::int64_t added = engine->stats().segments.bytes - with_first;
    CHECK(added * 50 < with_first * 20);  // what both have in common is there once
    first = {};
    const Run again = ask(*engine, next, reuse, random_tokens(3, 5), second.result.context);
    CHECK(again.result.kv_computed == kLayers);  // of the prompt's last token
  }
  CHECK(engine->stats().segments.bytes == before);
}

TEST_CASE("contexts: evicted, or of another engine, they are computed again", "[engine][contexts]") {
  const auto engine = engine_of(), other = engine_of();
  const std::vector<TokenId> said = random_tokens(9, 4), last = random_tokens(3, 6);
  const std::vector<PromptPart> begin = {text(40, 1)};
  const std::vector<PromptPart> prompt = begin + std::vector<PromptPart>{{"", said}, text(5, 2)};
  const Run full = ask(*engine, prompt, method("full"), last);
  const Run of_other = ask(*other, begin, method("direct"), said);
  const Run run = ask(*engine, prompt, method("direct"), last, of_other.result.context);
  CHECK(same(run, full));
  CHECK(run.result.continued_tokens == 0);

  // So small a budget that what is kept drives out what was kept before.
  const auto small = engine_of({}, {.segment_budget_bytes = 400 << 10});
  ReuseOptions reuse = method("direct");
  std::vector<Run> kept;
  std::int64_t evicted = 0;
  for (std::uint64_t i = 0; i < 40; ++i) {
    kept.push_back(ask(*small, {text(40, 10 + i)}, reuse, said));
    const Run next = ask(*small, {text(40, 10 + i), {"", said}, text(5, 2)}, reuse, last, kept[0].result.context);
    CHECK(next.result.error.empty());
  }
  for (std::uint64_t i = 0; i < 40; ++i) {
    const std::vector<PromptPart> continuing = {text(40, 10 + i), {"", said}, text(5, 2)};
    const Run next = ask(*small, continuing, reuse, last, kept[i].result.context);
    evicted += next.result.continued_tokens == 0 ? 1 : 0;
    CHECK(same(next, ask(*engine, continuing, method("full"), last)));
  }
  CHECK(small->stats().segments.evicted > 0);
  CHECK(evicted > 0);
}

TEST_CASE("contexts: what a context holds is evicted last", "[engine][contexts]") {
  const auto engine = engine_of({}, {.segment_budget_bytes = 400 << 10});
  const ReuseOptions reuse = method("prefix");
  const std::vector<TokenId> said = random_tokens(9, 4);
  const Run kept = ask(*engine, {text(60, 1)}, reuse, said);
  for (std::uint64_t i = 0; i < 60; ++i) {  // prompts of others
    GenerationRequest request;
    request.prompt = {text(60, 100 + i)};
    request.reuse = reuse;
    request.forced = said;
    run(*engine, std::move(request));
  }
  CHECK(engine->stats().segments.evicted > 0);
  const Run next = ask(*engine, {text(60, 1), {"", said}, text(5, 2)}, reuse, said, kept.result.context);
  CHECK(next.result.kv_computed ==
        (next.result.prompt_tokens - static_cast<std::int64_t>(kept.result.context->tokens.size())) * kLayers);
}

}  // namespace contexts_test
