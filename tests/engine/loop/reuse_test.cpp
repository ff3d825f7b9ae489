// SPDX-License-Identifier: Apache-2.0
// Reuse through the engine: what must be equal bit for bit, what must be counted, what must get better.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <future>
#include <numeric>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/model/forward.h"
#include "engine/registry.h"
#include "engine/reuse/lab/cacheblend/cacheblend.h"
#include "engine/reuse/lab/epic/epic.h"
#include "engine/reuse/placement.h"
#include "engine/reuse/rectify/rectify.h"
#include "tests/support/reuse_cases.h"
#include "tests/support/reuse_run.h"
#include "tests/support/tiny_model.h"

namespace reuse_test {

using namespace baton;
using namespace baton::test;

namespace {

constexpr std::int32_t kLayers = 6;
constexpr LayerRange kRange{1, 2, kLayers - 2};

ReuseOptions method(std::string_view name, bool prefix = false) {
  ReuseOptions reuse;
  reuse.method = find_method(name);
  reuse.range = name == "droidspeak" ? LayerRange::group(kRange.start, kRange.end) : kRange;
  own<RectifyOptions>(reuse).selection = {};
  reuse.min_tokens = 1;
  reuse.prefix = prefix;
  return reuse;
}

ReuseOptions recording(ReuseOptions reuse = method("full")) {
  reuse.record = true;
  return reuse;
}

PromptPart text(std::size_t n, std::uint64_t seed) { return {"", random_tokens(n, seed), nullptr, 0}; }

std::shared_ptr<StepEngine> engine_of(TinyOptions model = {}, LocalEngineOptions options = {}) {
  model.layers = kLayers;
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), options);
}

Run ask(InferenceEngine& engine, std::vector<PromptPart> prompt, const ReuseOptions& reuse, std::int32_t tokens = 3) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.reuse = reuse;
  request.max_tokens = tokens;
  return run(engine, std::move(request));
}

/// The answer of n given tokens to a prompt, as a part of later prompts.
PromptPart answer(InferenceEngine& engine, std::vector<PromptPart> prompt, std::size_t n, std::uint64_t seed,
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

/// Methods that recompute all of every segment.
std::vector<ReuseOptions> everything(bool prefix) {
  ReuseOptions epic = method("epic", prefix), blend = method("cacheblend", prefix), relay = method("rectify", prefix);
  own<EpicOptions>(epic).tokens = std::numeric_limits<std::int32_t>::max();
  own<CacheblendOptions>(blend).share = 1.0;
  relay.range = {0, 2, kLayers - 1};
  own<RectifyOptions>(relay).selection.all = true;
  ReuseOptions share = relay;
  own<RectifyOptions>(share).selection = {.share = 1.0};
  ReuseOptions unsure = relay;
  own<RectifyOptions>(unsure).selection = {.share = 1.0, .score = SelectionOptions::Score::entropy};
  ReuseOptions author = relay;
  own<RectifyOptions>(author).selection = {.share = 1.0, .score = SelectionOptions::Score::author};
  return {epic, blend, relay, share, unsure, author};
}

}  // namespace

TEST_CASE("reuse: every row recomputed in every layer is full prefill, bit for bit", "[reuse]") {
  for (const TinyOptions& model : kModels) {
    const auto engine = engine_of(model);
    const PromptPart first = answer(*engine, {text(40, 1)}, 50, 2), second = answer(*engine, {text(9, 3)}, 33, 4);
    const std::vector<PromptPart> prompts[] = {
        {text(20, 5), first, text(7, 6), second, text(11, 7)},
        {first, second, text(1, 8)},
        {text(70, 9), second, first},  // the last token is a segment's
        {first},
    };
    for (std::size_t i = 0; i < std::size(prompts); ++i) {
      const Run full = ask(*engine, prompts[i], method("full"));
      CHECK(full.result.kv_computed == full.result.kv_entries);
      for (const bool prefix : {false, true}) {
        for (const ReuseOptions& reuse : everything(prefix)) {
          INFO("prompt " << i << ", " << reuse.method->name << (prefix ? ", with prefix" : ""));
          const Run other = ask(*engine, prompts[i], reuse);
          CHECK(same(other, full));
          CHECK(other.result.kv_computed + reused(other.result) == other.result.kv_entries);
          // K and V of layer 0 depend on the token alone: rectify and cacheblend keep those that were placed.
          if (!prefix && reuse.method->name == "epic") CHECK(other.result.kv_computed == other.result.kv_entries);
          if (!prefix && reuse.method->name != "epic") {
            const std::int64_t positions = other.result.kv_entries / kLayers;
            CHECK(other.result.kv_computed > other.result.kv_entries - positions);
            CHECK(other.result.kv_computed < other.result.kv_entries);
          }
        }
      }
    }
  }
}

TEST_CASE("reuse: texts too many hand-overs away from exact KV are computed in full", "[reuse]") {
  const auto engine = engine_of(TinyOptions{});
  std::vector<PromptPart> chain = {text(33, 1)};
  for (std::uint64_t agent = 0; agent < 4; ++agent) {  // answers of 0, 1, 2, 3 hops
    chain.push_back(answer(*engine, chain, 45, agent, recording(method("direct"))));
    CHECK(engine->segment(chain.back().segment)->hops == static_cast<int>(agent));
  }
  for (int max_hops = 0; max_hops < 6; ++max_hops) {
    INFO("max_hops " << max_hops);
    ReuseOptions reuse = method("direct");
    reuse.max_hops = max_hops;
    const Run run = ask(*engine, chain, reuse);
    const int taken = max_hops == 0 ? 4 : std::min(max_hops, 4);
    CHECK(run.result.hops == taken);
    for (int i = 0; i < 4; ++i) {
      const PartUse& use = run.result.uses[static_cast<std::size_t>(i) + 1];
      CHECK(use.from_segment == (i < taken));
      if (i >= taken)
        CHECK(use.reason == "its KV is " + std::to_string(i) + (i == 1 ? " hand-over" : " hand-overs") +
                                " away from exact KV; expected fewer than " + std::to_string(max_hops));
    }
  }
}

TEST_CASE("reuse: behind the same text at the same place, every method is full prefill", "[reuse]") {
  for (const TinyOptions& model : kModels) {
    if (model.kv_dtype != DType::f32) continue;  // hidden states in bf16 are not those of the first run
    const auto engine = engine_of(model);
    std::vector<PromptPart> prompt = {text(33, 1)};
    std::vector<PromptPart> chain = {prompt[0]};
    for (std::uint64_t agent = 2; agent < 5;
         ++agent) {  // the prompt of each holds that of the one before and its answer
      chain.push_back(answer(*engine, chain, 45, agent, recording(method("direct"))));
      chain.push_back(text(6 + agent, 100 + agent));
      const Run full = ask(*engine, chain, method("full"));
      for (const std::string name : {"direct", "epic", "cacheblend", "rectify"}) {
        INFO("agent " << agent << ", " << name);
        const Run other = ask(*engine, chain, method(name));
        CHECK(same(other, full));
        CHECK(other.result.kv_computed < other.result.kv_entries);
        CHECK(other.result.kv_computed + reused(other.result) == other.result.kv_entries);
        CHECK(other.result.hops == static_cast<int>(agent) - 1);
      }
      // Deviations of exactly 0 choose nothing: only text runs behind the detection.
      ReuseOptions bare = method("rectify");
      own<RectifyOptions>(bare).selection = {.influence = false, .suffix = 0};
      const Run none = ask(*engine, chain, bare);
      CHECK(same(none, full));
      const std::int64_t moved = 45 * (static_cast<std::int64_t>(agent) - 1);
      CHECK(none.result.kv_computed ==
            (none.result.prompt_tokens - moved) * kLayers + moved * (kRange.detect - kRange.start));
    }
  }
}

TEST_CASE("reuse: direct behind the same text is full prefill with a cache of bf16 too", "[reuse]") {
  const auto engine = engine_of();
  std::vector<PromptPart> chain = {text(50, 1)};
  for (std::uint64_t agent = 2; agent < 5; ++agent) {
    chain.push_back(answer(*engine, chain, 40, agent, recording(method("direct"))));
    chain.push_back(text(5, agent + 10));
    CHECK(same(ask(*engine, chain, method("direct")), ask(*engine, chain, method("full"))));
  }
}

TEST_CASE("placing a segment where it was changes no bit, elsewhere only keys turn", "[reuse]") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const auto backend = make_cpu_backend(2);
    const auto model = make_tiny_model(*backend, {.kv_dtype = dtype});
    KvLayout layout = model->kv_layout();
    layout.raw_keys = true;
    layout.hidden_width = model->config.width;
    layout.hidden_layer = 1;
    const std::vector<TokenId> tokens = random_tokens(120, 1);
    KvCache cache(*backend, layout, 120), same_place(*backend, layout, 120), elsewhere(*backend, layout, 200),
        back(*backend, layout, 120);
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    for (std::int32_t i = 0; i < 120; ++i) rows.add_row(index, i, tokens[static_cast<std::size_t>(i)]);
    Forward(*backend, *model).run(rows);
    cache.commit(120);

    const Segment segment(*backend, cache, 30, 70, {tokens.begin() + 30, tokens.begin() + 100});
    RopeTable angles(*backend, model->ropes);
    insert(*backend, angles, same_place, 30, segment, 0, 70);
    insert(*backend, angles, elsewhere, 101, segment, 0, 70);
    elsewhere.commit(171);
    const Segment moved(*backend, elsewhere, 101, 70, segment.tokens());
    insert(*backend, angles, back, 30, moved, 0, 70);
    const auto read = [&](const KvCache& from, std::int32_t layer, std::int32_t begin) {
      const std::int64_t cols = static_cast<std::int64_t>(model->config.kv_heads) * model->config.head_dim;
      std::vector<float> all(static_cast<std::size_t>(2 * 70 * cols));
      const TensorView both = view_of(all.data(), 140, cols);
      backend->load_kv(both.row_range(0, 70), both.row_range(70, 140), from.slab(layer), model->kv_shape(), begin);
      return all;
    };
    const auto hidden = [&](const KvCache& from, std::int32_t begin) {
      const ConstTensorView rows_of = from.hidden().row_range(begin, begin + 70);
      return std::vector<std::byte>(rows_of.data,
                                    rows_of.data + 70 * rows_of.cols * static_cast<std::int64_t>(size_of(dtype)));
    };
    for (std::int32_t layer = 0; layer < model->config.layers; ++layer) {
      const auto original = read(cache, layer, 30), other = read(elsewhere, layer, 101);
      CHECK(read(same_place, layer, 30) == original);
      CHECK(read(back, layer, 30) == original);
      const auto half = static_cast<std::ptrdiff_t>(original.size() / 2);
      CHECK(!std::equal(original.begin(), original.begin() + half, other.begin()));
      CHECK(std::equal(original.begin() + half, original.end(), other.begin() + half));
    }
    CHECK(hidden(same_place, 30) == hidden(cache, 30));
    CHECK(hidden(elsewhere, 101) == hidden(cache, 30));
    CHECK_THROWS_AS(insert(*backend, angles, same_place, 100, segment, 0, 70), std::invalid_argument);
    CHECK_THROWS_AS(insert(*backend, angles, same_place, 0, segment, 1, 70), std::invalid_argument);
  }
}

TEST_CASE("moved values differ from fresh ones behind the layer they enter in, and not in it", "[reuse]") {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const auto backend = make_cpu_backend(2);
    const auto model = make_tiny_model(*backend, {.layers = kLayers, .kv_dtype = dtype});
    Forward forward(*backend, *model);
    KvLayout layout = model->kv_layout();
    layout.raw_keys = true;
    layout.hidden_width = model->config.width;
    layout.hidden_layer = kRange.start;
    const auto fill = [&](KvCache& cache, const std::vector<TokenId>& tokens) {
      StepRows rows;
      const std::int32_t index = rows.add_cache(&cache);
      for (std::size_t i = 0; i < tokens.size(); ++i) rows.add_row(index, static_cast<std::int32_t>(i), tokens[i]);
      forward.run(rows);
      cache.commit(static_cast<std::int32_t>(tokens.size()));
    };
    KvCache producer(*backend, layout, 100), consumer(*backend, layout, 140);
    const std::vector<TokenId> tokens = random_tokens(100, 1);
    fill(producer, tokens);
    fill(consumer, random_tokens(73, 2));
    const Segment segment(*backend, producer, 40, 60, {tokens.begin() + 40, tokens.end()});
    RopeTable angles(*backend, model->ropes);
    insert(*backend, angles, consumer, 73, segment, 0, 60);
    const auto mean_deviation = [&](std::int32_t layer) {
      StepRows rows;
      double sum = 0;
      const std::int32_t index = rows.add_cache(&consumer);
      for (std::int32_t i = 0; i < 60; ++i) {
        rows.add_row(index, 73 + i, segment.tokens()[static_cast<std::size_t>(i)]);
        rows.path.push_back({kRange.start, layer + 1, 0});
      }
      rows.detections.push_back({layer, layer + 1, [&](std::span<const float> d, std::span<const float>) {
                                   sum = std::accumulate(d.begin(), d.end(), 0.0);
                                   return std::vector<bool>(d.size(), false);
                                 }});
      forward.run(rows);
      return sum / 60;
    };
    const double at_start = mean_deviation(kRange.start), behind = mean_deviation(kRange.start + 1);
    INFO("mean deviation " << at_start << ", then " << behind);
    if (dtype == DType::f32) CHECK(at_start == 0.0);
    CHECK(at_start < 1e-4);  // the rounding of hidden states: 2^-9 relative, squared
    CHECK(behind > 1e-2);
  }
}

TEST_CASE("reuse: any number of rows a step gives the same bits for every method", "[reuse]") {
  for (const TinyOptions& model : {kModels[0], kModels[2]}) {
    std::vector<Run> expected;
    for (const std::int32_t rows : {512, 64, 7, 1}) {
      const auto engine = engine_of(model, {.max_step_rows = rows});
      const PromptPart first = answer(*engine, {text(30, 1)}, 60, 2), second = answer(*engine, {text(30, 3)}, 35, 4);
      const std::vector<PromptPart> prompt = {text(41, 5), first, text(13, 6), second, second, text(17, 7)};
      std::size_t at = 0;
      for (const Method* each : methods()) {
        const Method& row = *each;
        Run now = ask(*engine, prompt, method(row.name));
        INFO(row.name << ", " << rows << " rows");
        if (rows == 512) {
          expected.push_back(std::move(now));
          continue;
        }
        CHECK(same(now, expected[at]));
        CHECK(now.result.kv_computed == expected[at].result.kv_computed);
        ++at;
      }
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {  // there is something to see
      const Method& row = *methods()[i];
      // Anchors compute what they never saw, and auto knows nothing of this model.
      const bool exact = is_exact(row) || learns(row) || uses_levels(row);
      CHECK(same(expected[i], expected[0]) == exact);
    }
  }
}

TEST_CASE("reuse: other sequences beside it change no bit", "[reuse]") {
  const auto quiet = engine_of(), busy = engine_of({}, {.max_step_rows = 48});
  const auto prompt_on = [](InferenceEngine& engine) {
    return std::vector<PromptPart>{text(21, 5), answer(engine, {text(30, 1)}, 60, 2), text(13, 6)};
  };
  const std::vector<PromptPart> alone = prompt_on(*quiet), beside = prompt_on(*busy);
  std::vector<std::future<GenerationResult>> others;
  for (std::uint64_t i = 0; i < 4; ++i) {
    auto done = std::make_shared<std::promise<GenerationResult>>();
    others.push_back(done->get_future());
    GenerationRequest request;
    request.prompt = {text(20 + 30 * i, i)};
    request.forced = random_tokens(80, i);
    request.callbacks.on_finished = [done](GenerationResult result) { done->set_value(std::move(result)); };
    busy->submit(std::move(request));
  }
  for (const Method* each : methods()) {
    const Method& row = *each;
    INFO(row.name);
    CHECK(same(ask(*busy, beside, method(row.name), 8), ask(*quiet, alone, method(row.name), 8)));
  }
  for (auto& other : others) CHECK(other.get().error.empty());
}

TEST_CASE("reuse: prefixes of any length are exact", "[reuse]") {
  for (const TinyOptions& model : kModels) {
    const auto plain = engine_of(model), cached = engine_of(model);
    const std::vector<TokenId> stem = random_tokens(150, 1);
    ask(*cached, {{"", stem, nullptr, 0}}, method("prefix", true), 1);
    for (const std::int32_t length : {1, 15, 16, 17, 63, 64, 65, 128, 149, 150}) {
      std::vector<TokenId> tokens(stem.begin(), stem.begin() + length);
      tokens.push_back(255 -
                       (length < 150 ? stem[static_cast<std::size_t>(length)] : 0));  // another one than the stem's
      const std::vector<TokenId> tail = random_tokens(9, static_cast<std::uint64_t>(length));
      tokens.insert(tokens.end(), tail.begin(), tail.end());
      const std::vector<PromptPart> prompt = {{"", tokens, nullptr, 0}};
      const Run full = ask(*plain, prompt, method("full"));
      INFO("common tokens: " << length);
      const Run exact = ask(*cached, prompt, method("prefix", true));
      CHECK(same(exact, full));
      CHECK(exact.result.kv_computed == 10 * kLayers);
      CHECK(exact.result.hops == 0);
      const Run again = ask(*cached, prompt, method("prefix", true));
      CHECK(same(again, full));
      const bool kept = length > 6;  // what is 16 tokens longer than the rest is kept
      if (kept) CHECK(again.result.kv_computed <= 10 * kLayers);
      CHECK(again.result.kv_computed >= kLayers);  // the last token always runs
      CHECK(again.result.kv_computed + reused(again.result) == again.result.kv_entries);
    }
  }
}

TEST_CASE("reuse: an answer continues as an exact prefix, one behind moved segments does not", "[reuse]") {
  const auto engine = engine_of();
  const Run first = ask(*engine, {text(40, 1)}, method("prefix", true), 20);
  std::vector<TokenId> tokens = random_tokens(40, 1);
  tokens.insert(tokens.end(), first.result.tokens.begin(), first.result.tokens.end());
  const std::vector<PromptPart> follow = {{"", tokens, nullptr, 0}, text(5, 3)};
  const Run second = ask(*engine, follow, method("prefix", true));
  CHECK(same(second, ask(*engine, follow, method("full"))));
  const auto ran =
      static_cast<std::int64_t>(first.result.tokens.size()) - (first.result.reason == FinishReason::length ? 1 : 0);
  CHECK(second.result.kv_computed == (second.result.prompt_tokens - 40 - ran) * kLayers);

  // Behind a moved segment nothing is exact: only the text before it may become a prefix.
  const PromptPart moved = answer(*engine, {text(30, 4)}, 50, 5);
  const std::vector<PromptPart> prompt = {text(35, 6), moved, text(25, 7)};
  ask(*engine, prompt, method("direct", true));
  const Run exact = ask(*engine, prompt, method("prefix", true));
  CHECK(same(exact, ask(*engine, prompt, method("full"))));
  CHECK(exact.result.kv_computed == (50 + 25) * kLayers);
  CHECK(exact.result.uses[0].method->name == "prefix");
  CHECK(exact.result.uses[1].method->name == "full");
}

TEST_CASE("reuse: a segment is whole, with hidden states and attention, whatever prefix its prompt has", "[reuse]") {
  for (const std::string first : {"prefix", "direct", "rectify"}) {  // kept without and with hidden states
    const auto engine = engine_of({.kv_dtype = DType::f32}), other = engine_of({.kv_dtype = DType::f32});
    PromptPart question = text(60, 2);
    question.slot = "question";
    question.readers = 3;
    const std::vector<PromptPart> prompt = {text(20, 1), question, text(9, 3)};
    ask(*engine, prompt, method(first, true));
    const auto consume = [&](InferenceEngine& on) {
      GenerationRequest request;
      request.prompt = prompt;
      request.reuse = recording(method("rectify", true));
      const Run producer = run(on, std::move(request));
      REQUIRE(producer.result.segments[1]);
      PromptPart moved = question;
      moved.segment = producer.result.segments[1];
      return ask(on, {text(31, 4), moved, text(12, 5)}, method("rectify"));
    };
    INFO("prefix kept by " << first);
    CHECK(same(consume(*engine), consume(*other)));
  }
}

TEST_CASE("reuse: a prefix that reaches into a segment leaves the rest of it to the method", "[reuse]") {
  for (const std::size_t common : {1u, 7u, 39u}) {
    const auto engine = engine_of();
    const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
    std::vector<TokenId> stem = random_tokens(50, 3);  // an earlier prompt that goes on like the answer, for a while
    stem.insert(stem.end(), part.tokens.begin(), part.tokens.begin() + static_cast<std::ptrdiff_t>(common));
    ask(*engine, {{"", stem, nullptr, 0}}, method("prefix", true), 1);
    const std::vector<PromptPart> prompt = {text(50, 3), part, text(10, 4)};
    const auto rest = static_cast<std::int64_t>(40 - common);
    INFO(common << " tokens in common");
    const Run direct = ask(*engine, prompt, method("direct", true));
    CHECK(direct.result.uses[0].method->name == "prefix");
    CHECK(direct.result.uses[1].method->name == "direct");
    CHECK(direct.result.kv_computed == 10 * kLayers);
    CHECK(direct.result.hops == 1);
    ReuseOptions epic = method("epic", true);
    own<EpicOptions>(epic).tokens = 8;
    const auto head = static_cast<std::int64_t>(common < 8 ? 8 - common : 0);
    CHECK(ask(*engine, prompt, epic).result.kv_computed == (10 + head) * kLayers);
    ReuseOptions all = method("rectify", true);
    all.range = {0, 1, kLayers - 1};
    own<RectifyOptions>(all).selection.all = true;
    const Run exact = ask(*engine, prompt, all);
    CHECK(exact.result.kv_computed == 10 * kLayers + rest * (kLayers - 1));
    CHECK(same(exact, ask(*engine, prompt, method("full"))));
    ReuseOptions suffix = method("rectify", true);
    own<RectifyOptions>(suffix).selection = {.deviation = false, .influence = false, .suffix = 7};
    const std::int64_t chosen = std::min<std::int64_t>(rest, 7) * (kRange.end - kRange.detect);
    CHECK(ask(*engine, prompt, suffix).result.kv_computed ==
          10 * kLayers + rest * (kRange.detect - kRange.start) + chosen);
    CHECK(ask(*engine, prompt, method("rectify", true)).result.uses[1].method->name == "rectify");
    // Nothing inexact was kept as a prefix.
    CHECK(same(ask(*engine, prompt, method("prefix", true)), exact));
  }
}

TEST_CASE("reuse: entries computed and reused add up to those of the prompt", "[reuse]") {
  const auto engine = engine_of();
  const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
  const std::vector<PromptPart> prompt = {text(20, 3), part, text(10, 4)};
  const std::int64_t s = 30, r = 40, length = kRange.end - kRange.start, detect = kRange.detect - kRange.start;
  ReuseOptions range_alone = method("rectify"), suffix = method("rectify"), share = method("rectify"),
               epic = method("epic"), blend = method("cacheblend");
  own<RectifyOptions>(range_alone).selection.all = true;
  own<RectifyOptions>(suffix).selection = {.deviation = false, .influence = false, .suffix = 7};
  own<RectifyOptions>(share).selection.share = 0.25;
  own<EpicOptions>(epic).tokens = 12;
  own<CacheblendOptions>(blend).share = 0.26;
  ReuseOptions unsure = method("rectify");
  own<RectifyOptions>(unsure).selection = {
      .suffix = 0, .head = 3, .share = 0.25, .score = SelectionOptions::Score::entropy};
  ReuseOptions author = method("rectify");
  own<RectifyOptions>(author).selection = {
      .suffix = 4, .head = 3, .share = 0.25, .score = SelectionOptions::Score::author};
  ReuseOptions from_zero = range_alone;
  from_zero.range.start = 0;
  struct Known {
    ReuseOptions reuse;
    std::int64_t computed, reused_tokens;
  };
  const Known known[] = {
      {method("full"), (s + r) * kLayers, 0},
      {method("direct"), s * kLayers, r},
      {epic, (s + 12) * kLayers, r - 12},
      {blend, s * kLayers + r + 10 * (kLayers - 2), r - 10},  // int(0.26 * 40)
      {range_alone, s * kLayers + r * length, 0},
      {suffix, s * kLayers + r * detect + 7 * (length - detect), r - 7},
      {share, s * kLayers + r * detect + 10 * (length - detect), r - 10},
      {from_zero, s * kLayers + r * kRange.end, 0},
      {unsure, s * kLayers + 10 * length, r - 10},  // no detection: the others are not computed at all
      {author, s * kLayers + 10 * length, r - 10},
  };
  for (const auto& [reuse, computed, reused_tokens] : known) {
    const GenerationResult result = ask(*engine, prompt, reuse).result;
    INFO(reuse.method->name << ", expected " << computed);
    CHECK(result.kv_entries == (s + r) * kLayers);
    CHECK(result.kv_computed == computed);
    REQUIRE(result.uses.size() == 3);
    CHECK(result.uses[1].kv_reused == result.kv_entries - computed);
    CHECK(result.uses[0].kv_reused + result.uses[2].kv_reused == 0);
    CHECK(result.uses[0].kv_reusable + result.uses[2].kv_reusable == 0);
    const std::int64_t up_to_detection = reuse.method->name == "rectify" ? reuse.range.detect - reuse.range.start : 1;
    const bool detects = (reuse.method->name == "rectify" &&
                          own<RectifyOptions>(reuse).selection.score == SelectionOptions::Score::deviation) ||
                         reuse.method->name == "cacheblend";
    CHECK(result.uses[1].kv_reusable == (detects ? r * (kLayers - up_to_detection) : result.uses[1].kv_reused));
    CHECK(result.uses[1].method == reuse.method);
    CHECK(result.uses[1].reason.empty());
    CHECK(result.uses[1].reused_tokens == reused_tokens);
    CHECK(result.hops == (reuse.method->name == "full" ? 0 : 1));
  }
  // The layer range alone: of the segment's entries, 1 - (l_e - l_s) / L are reused.
  const GenerationResult result = ask(*engine, prompt, range_alone).result;
  CHECK(static_cast<double>(result.uses[1].kv_reused) / (r * kLayers) ==
        Approx(1.0 - static_cast<double>(length) / kLayers));
}

TEST_CASE("reuse: an answer that was cut off has no KV of its last token, which is computed", "[reuse]") {
  const auto engine = engine_of();
  GenerationRequest request;
  request.prompt = {text(30, 1)};
  request.reuse = recording();
  request.output_readers = 1;
  request.max_tokens = 40;
  const Run made = run(*engine, std::move(request));
  REQUIRE(made.result.reason == FinishReason::length);
  REQUIRE(made.result.output->tokens == 39);
  const PromptPart part{"answer", made.result.tokens, made.result.output, 0};
  const Run direct = ask(*engine, {text(30, 1), part, text(10, 4)}, method("direct"));
  CHECK(same(direct, ask(*engine, {text(30, 1), part, text(10, 4)}, method("full"))));
  CHECK(direct.result.kv_computed == (30 + 1 + 10) * kLayers);
  // As the whole prompt: the last token has none, so that all the rest is reused.
  CHECK(ask(*engine, {part}, method("direct")).result.kv_computed == kLayers);
}

TEST_CASE("reuse: a segment knows the attention it received, and how sure its author was", "[reuse]") {
  const auto engine = engine_of(), small_steps = engine_of({}, {.max_step_rows = 7});
  GenerationRequest request;
  request.prompt = {text(20, 1), text(30, 2), text(10, 3)};
  request.prompt[1].readers = 1;
  request.reuse = recording();
  request.forced = random_tokens(40, 4);
  request.output_readers = 1;
  const Run again = run(*small_steps, request);
  const Run made = run(*engine, std::move(request));
  const auto part = engine->segment(made.result.segments[1]), output = engine->segment(made.result.output);
  REQUIRE(part);
  CHECK(std::ranges::equal(part->received(), small_steps->segment(again.result.segments[1])->received()));
  REQUIRE(output);
  CHECK(output->received()[39] == 0.0f);
  for (const auto& segment : {part, output}) {
    REQUIRE(segment->received().size() == static_cast<std::size_t>(segment->length()));
    const std::int32_t later = segment == part ? 10 + 40 : 0;  // rows behind the segment
    for (std::int32_t i = 0; i < segment->length() - (segment == output ? 1 : 0); ++i) {
      CHECK(segment->received()[static_cast<std::size_t>(i)] > 0.0f);
      CHECK(segment->received()[static_cast<std::size_t>(i)] <
            6.0f * kLayers * static_cast<float>(segment->length() - 1 - i + later));  // 6 heads
    }
  }
  CHECK(part->entropy.empty());  // nobody generated it
  REQUIRE(output->entropy.size() == 40);
  REQUIRE(made.logits.size() >= 40);
  for (std::size_t i = 0; i < 40; ++i) {
    double most = -1e30, sum = 0, expected = 0;
    for (const float logit : made.logits[i]) most = std::max(most, static_cast<double>(logit));
    for (const float logit : made.logits[i]) sum += std::exp(logit - most);
    for (const float logit : made.logits[i]) {
      const double p = std::exp(logit - most) / sum;
      expected -= p * std::log(p);
    }
    CHECK(output->entropy[i] == Approx(expected).margin(1e-4));  // without the unlikeliest ids
  }
}

TEST_CASE("reuse: why a segment is not taken is said", "[reuse]") {
  using Catch::Contains;
  const auto engine = engine_of();
  const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
  ReuseOptions no_hidden_states = recording();
  no_hidden_states.range = {2, 3, 4};
  const PromptPart other_layer = answer(*engine, {text(30, 1)}, 40, 2, no_hidden_states);
  const auto use = [&](PromptPart p, const ReuseOptions& reuse) {
    const Run run = ask(*engine, {text(20, 3), p, text(10, 4)}, reuse);
    CHECK(same(run, ask(*engine, {text(20, 3), p, text(10, 4)}, method("full"))));
    CHECK(run.result.kv_computed == run.result.kv_entries);
    return run.result.uses[1];
  };
  ReuseOptions longer = method("rectify");
  longer.min_tokens = 41;
  CHECK_THAT(use(part, longer).reason, Contains("40 tokens") && Contains("41"));
  CHECK(use(part, longer).method->name == "full");
  PromptPart edited = part;
  edited.tokens[7] ^= 1;
  CHECK_THAT(use(edited, method("direct")).reason, Contains("other tokens"));
  CHECK_THAT(use(other_layer, method("rectify")).reason, Contains("no hidden states of layer 1"));
  CHECK(use({"", part.tokens, nullptr, 0}, method("rectify")).reason.empty());
  CHECK(ask(*engine, {text(20, 3), other_layer, text(10, 4)}, method("direct")).result.uses[1].method->name ==
        "direct");

  GenerationRequest request;
  request.prompt = {text(5, 1)};
  request.reuse.method = find_method("rectify");  // neither the request nor the model has a range
  CHECK_THROWS_WITH(engine->submit(std::move(request)), Contains("has not been profiled"));
  update_calibration(*engine, [&](Calibration& now) { now.range = kRange; });
  ReuseOptions of_model = method("rectify");
  of_model.range = {};
  const Run relayed = ask(*engine, {text(20, 3), part, text(10, 4)}, of_model);
  CHECK(same(relayed, ask(*engine, {text(20, 3), part, text(10, 4)}, method("rectify"))));
}

TEST_CASE("reuse: layers and numbers that a method cannot take are errors, never replaced", "[reuse]") {
  using Catch::Contains;
  const auto engine = engine_of();
  update_calibration(*engine, [&](Calibration& now) { now.range = kRange; });
  const auto refused = [&](const ReuseOptions& reuse, const std::string& message) {
    GenerationRequest request;
    request.prompt = {text(5, 1)};
    request.reuse = reuse;
    INFO(message);
    CHECK_THROWS_WITH(engine->submit(std::move(request)), Contains(message));
  };
  for (const char* name : {"rectify", "direct", "full"}) {
    ReuseOptions beyond = method(name);
    beyond.range = {0, 1, kLayers};  // its layers are 0 to kLayers - 1
    refused(beyond, "expected 0 <= start < detect < end < 6, found start 0, detect 1, end 6");
    beyond.range = {2, 1, 3};
    refused(beyond, "found start 2, detect 1, end 3");
  }
  ReuseOptions group = method("droidspeak");
  group.range = LayerRange::group(1, kLayers);
  refused(group, "expected start < end < 6");
  ReuseOptions blend = method("cacheblend"), paper = method("rectify"), epic = method("epic");
  own<CacheblendOptions>(blend).reuse = 0.9;
  refused(blend, "cannot reuse 0.900 of the entries; expected at most 0.833");
  own<RectifyOptions>(paper).selection = SelectionOptions::by_paper();
  paper.range = {0, 2, 5};
  own<RectifyOptions>(paper).reuse = 0.7;
  refused(paper, "expected at most 0.667");
  own<CacheblendOptions>(blend).reuse = 1.5;
  refused(blend, "reuse is 1.5; expected a number from 0 to 1");
  own<CacheblendOptions>(blend).reuse = 0.0;
  own<CacheblendOptions>(blend).share = -0.1;
  refused(blend, "cacheblend_share is -0.1");
  own<EpicOptions>(epic).tokens = -1;
  refused(epic, "epic_tokens is -1; expected at least 0");
  own<RectifyOptions>(paper).reuse = 0.0;
  own<RectifyOptions>(paper).selection.share = std::nan("");
  refused(paper, "selection.share is nan");
}

TEST_CASE("reuse: the published preset takes the layers of the paper's profiler", "[reuse]") {
  const auto engine = engine_of();
  const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
  const std::vector<PromptPart> prompt = {text(20, 3), part, text(10, 4)};
  update_calibration(*engine, [&](Calibration& now) { now.range = {1, 2, 3}; });
  update_calibration(*engine, [&](Calibration& now) { now.paper_range = {1, 3, 5}; });
  ReuseOptions paper = method("rectify");
  own<RectifyOptions>(paper).selection = SelectionOptions::by_paper();
  ReuseOptions given = paper;
  given.range = {1, 3, 5};
  paper.range = {};
  own<RectifyOptions>(paper).paper_layers = true;
  CHECK(same(ask(*engine, prompt, paper), ask(*engine, prompt, given)));
  given.range = {1, 2, 3};
  CHECK_FALSE(same(ask(*engine, prompt, paper), ask(*engine, prompt, given)));
}

TEST_CASE("reuse: epic, cacheblend and rectify leave what is asked, from two segments and in steps of any size",
          "[reuse]") {
  std::vector<Run> runs;
  for (const std::int32_t rows : {7, 512}) {
    const auto engine = engine_of({}, {.max_step_rows = rows});
    const PromptPart first = answer(*engine, {text(30, 1)}, 40, 2), second = answer(*engine, {text(11, 5)}, 27, 6);
    const std::vector<PromptPart> prompt = {text(20, 3), first, text(9, 7), second, text(10, 4)};
    std::size_t at = 0;
    for (const char* name : {"epic", "cacheblend", "rectify", "author"}) {
      ReuseOptions reuse = method(std::string_view(name) == "author" ? "rectify" : name);
      if (std::string_view(name) == "epic") {
        own<EpicOptions>(reuse).reuse = 0.7;
      } else if (std::string_view(name) == "cacheblend") {
        own<CacheblendOptions>(reuse).reuse = 0.7;
      } else {
        own<RectifyOptions>(reuse).selection =
            std::string_view(name) == "author" ? SelectionOptions::by_author() : SelectionOptions::by_paper();
        own<RectifyOptions>(reuse).reuse = 0.7;
      }
      Run run = ask(*engine, prompt, reuse);
      const auto reused = static_cast<double>(run.result.uses[1].kv_reused + run.result.uses[3].kv_reused);
      INFO(name << " in steps of " << rows);
      CHECK(reused >= 0.7 * 67 * kLayers);
      CHECK(reused < 0.7 * 67 * kLayers + 2 * kLayers);  // rounded down, in each segment
      if (rows == 512)
        CHECK(same(runs[at++], run));
      else
        runs.push_back(std::move(run));
    }
  }
}

TEST_CASE("reuse: the more is recomputed, the closer to full prefill", "[reuse]") {
  const auto engine = engine_of({.kv_dtype = DType::f32});
  std::vector<ReuseOptions> ladder = {method("direct")};
  for (const std::int32_t k : {8, 24, 40, 48}) {
    ladder.push_back(method("epic"));
    own<EpicOptions>(ladder.back()).tokens = k;
  }
  std::vector<ReuseOptions> relay;
  for (const double share : {0.02, 0.5, 1.0}) {
    relay.push_back(method("rectify"));
    relay.back().range = {0, 1, kLayers - 1};
    own<RectifyOptions>(relay.back()).selection = {.suffix = 0, .share = share};
  }
  std::vector<double> epic_error(ladder.size()), relay_error(relay.size());
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const PromptPart part = answer(*engine, {text(25, 10 * seed)}, 48, 10 * seed + 1);
    const std::vector<PromptPart> prompt = {text(19, 10 * seed + 2), part, text(6, 10 * seed + 3)};
    const Run full = ask(*engine, prompt, method("full"), 1);
    const auto error_of = [&](const ReuseOptions& reuse) {
      const Run run = ask(*engine, prompt, reuse, 1);
      double sum = 0;
      for (std::size_t i = 0; i < full.logits[0].size(); ++i)
        sum += std::abs(static_cast<double>(run.logits[0][i]) - full.logits[0][i]);
      return sum / static_cast<double>(full.logits[0].size());
    };
    for (std::size_t i = 0; i < ladder.size(); ++i) epic_error[i] += error_of(ladder[i]) / 40;
    for (std::size_t i = 0; i < relay.size(); ++i) relay_error[i] += error_of(relay[i]) / 40;
  }
  for (const auto* errors : {&epic_error, &relay_error}) {
    for (std::size_t i = 1; i < errors->size(); ++i) {
      INFO("step " << i << ": " << (*errors)[i - 1] << ", then " << (*errors)[i]);
      CHECK((*errors)[i] <= 1.03 * (*errors)[i - 1]);
    }
    INFO("first " << errors->front());
    CHECK(errors->front() > 0.01);
    CHECK(errors->back() == 0.0);
  }
}

}  // namespace reuse_test
