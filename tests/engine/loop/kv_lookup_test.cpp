// SPDX-License-Identifier: Apache-2.0
// The look-up of KV without a model: what a prompt can begin with, whom it follows, and which texts it takes.
#include "engine/loop/kv_lookup.h"
#include "engine/registry.h"

#include <catch2/catch.hpp>
#include <numeric>

namespace kv_lookup_test {

using namespace baton;
using Tokens = std::vector<TokenId>;

namespace {

Tokens numbers(std::size_t count) {
  Tokens tokens(count);
  std::iota(tokens.begin(), tokens.end(), TokenId{1});
  return tokens;
}

/// A running prompt with the first `same` of `tokens` and 50 others; `ready` of them have KV, all that are the prompt's
/// will.
struct Running {
  Running(const Tokens& tokens, std::size_t same, std::int32_t ready) {
    all.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(same));
    all.resize(same + 50, 1000);
    live = {7, nullptr, all, ready, static_cast<std::int32_t>(all.size())};
  }
  Tokens all;
  LivePrefix live;
};

GenerationRequest reader() {
  GenerationRequest request;
  request.run = 3;
  request.reuse.method = find_method("rectify");
  request.prompt.resize(1);
  request.prompt[0].slot = "input.document";
  request.prompt[0].tokens = numbers(40);
  return request;
}

}  // namespace

TEST_CASE("a prompt begins with the longest KV that is there", "[kv_lookup]") {
  const Tokens prompt = numbers(100);
  const Running running(prompt, 60, 30);
  const std::vector<LivePrefix> live{running.live};
  CHECK(known_beginning({}, {}, prompt, 99) == 0);
  CHECK(known_beginning({.stored = 20}, {}, prompt, 99) == 20);
  CHECK(known_beginning({.stored = 20, .early = 25}, {}, prompt, 99) == 25);
  CHECK(known_beginning({.stored = 20, .early = 25, .context = 28}, {}, prompt, 99) == 28);
  CHECK(known_beginning({.context = 28}, live, prompt, 99) == 30);  // of the running prompt's 60, those that are ready
}

TEST_CASE("prefixes end where a part becomes a segment, and some methods take none", "[kv_lookup]") {
  const Tokens prompt = numbers(100);
  const Running running(prompt, 60, 50);
  const std::vector<LivePrefix> live{running.live};
  CHECK(known_beginning({.stored = 40}, {}, prompt, 16) == 16);
  CHECK(known_beginning({}, live, prompt, 16) == 16);
  CHECK(known_beginning({.stored = 40, .early = 24}, live, prompt, 16) == 24);  // that is no prefix
  CHECK(known_beginning({.stored = 40, .early = 5}, live, prompt, std::nullopt) == 5);
}

TEST_CASE("a prompt follows a running one if that saves enough", "[kv_lookup]") {
  const Tokens prompt = numbers(100);
  const Running running(prompt, 60, 10);
  const std::vector<LivePrefix> live{running.live};
  const Lead lead = lead_of(PromptKv{}, live, prompt, 99);
  CHECK(lead.id == 7);
  CHECK(lead.length == 60);
  CHECK(lead_of({.stored = 44}, live, prompt, 99).id == 7);  // 16 more tokens
  CHECK(lead_of({.stored = 45}, live, prompt, 99).id == 0);
  CHECK(lead_of({.early = 45}, live, prompt, 99).id == 0);
  CHECK(lead_of({.context = 45}, live, prompt, 99).id == 0);
  CHECK(lead_of(PromptKv{}, live, prompt, 40).length == 40);
  const Running ready(prompt, 60, 60);  // nothing is left to wait for
  const std::vector<LivePrefix> done{ready.live};
  CHECK(lead_of(PromptKv{}, done, prompt, 99).id == 0);
  const Running longer(prompt, 80, 0);
  const std::vector<LivePrefix> both{running.live, longer.live};
  CHECK(lead_of(PromptKv{}, both, prompt, 99).length == 80);
}

TEST_CASE("a text is taken from another prompt of the same run, if the method hands texts over", "[kv_lookup]") {
  GenerationRequest request = reader();
  PromptPart& part = request.prompt[0];
  CHECK(takes_text(request, as_asked(request.reuse), part, 0));
  request.reuse.max_hops = 2;
  CHECK(takes_text(request, as_asked(request.reuse), part, 1));
  CHECK(!takes_text(request, as_asked(request.reuse), part, 2));
  request.reuse.max_hops = 0;
  CHECK(takes_text(request, as_asked(request.reuse), part, 5));
  request.run = 0;
  CHECK(!takes_text(request, as_asked(request.reuse), part, 0));
  request = reader();
  request.reuse.method = find_method("prefix");
  CHECK(!takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
  request = reader();
  request.prompt[0].slot.clear();  // fixed text
  CHECK(!takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
  request = reader();
  request.prompt[0].segment = std::make_shared<StoredSegment>();
  CHECK(!takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
}

TEST_CASE("a short text is computed", "[kv_lookup]") {
  GenerationRequest request = reader();
  request.prompt[0].tokens = numbers(32);
  CHECK(takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
  request.prompt[0].tokens = numbers(31);
  CHECK(!takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
  request.reuse.min_tokens = 1;
  request.prompt[0].tokens = numbers(16);
  CHECK(takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
  request.prompt[0].tokens = numbers(15);
  CHECK(!takes_text(request, as_asked(request.reuse), request.prompt[0], 0));
}

TEST_CASE("a text is waited for until its prompt is complete, and is taken then", "[kv_lookup]") {
  const GenerationRequest request = reader();
  const PromptPart& part = request.prompt[0];
  CHECK(text_step(request, as_asked(request.reuse), part, {}, 50, 0) == TextStep::wait);
  CHECK(text_step(request, as_asked(request.reuse), part, {.complete = true}, 50, 0) == TextStep::take);
  CHECK(text_step(request, as_asked(request.reuse), part, {.complete = true}, 50, 50) == TextStep::take);
  CHECK(text_step(request, as_asked(request.reuse), part, {.complete = true}, 50, 51) ==
        TextStep::compute);  // it is there already
  CHECK(text_step(request, as_asked(request.reuse), part, {}, 50, 51) == TextStep::compute);
  CHECK(text_step(request, as_asked(request.reuse), part, {.tentative = true, .complete = true}, 50, 0) ==
        TextStep::compute);
  GenerationRequest near = request;
  near.reuse.max_hops = 1;
  CHECK(text_step(near, as_asked(near.reuse), part, {.complete = true, .hops = 1}, 50, 0) == TextStep::compute);
}

}  // namespace kv_lookup_test
