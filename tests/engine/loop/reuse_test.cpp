// SPDX-License-Identifier: Apache-2.0
// Reuse through the engine: what must be equal bit for bit, what must be counted, what must get better.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <future>
#include <numeric>

#include "engine/model/forward.h"
#include "engine/reuse/placement.h"
#include "tests/support/reuse_prompts.h"

namespace reuse_test {

using namespace baton;
using namespace baton::test;
using namespace baton::test::reuse_prompts;

namespace {

/// Methods that recompute all of every segment.
std::vector<ReuseOptions> everything(bool prefix) {
  ReuseOptions relay = method("rectify", prefix);
  relay.range = {0, 2, kLayers - 1};
  std::vector<ReuseOptions> all = recomputing_all(relay);
  own<RectifyOptions>(relay).selection.all = true;
  ReuseOptions unsure = relay;
  own<RectifyOptions>(unsure).selection = {.share = 1.0, .score = SelectionOptions::Score::entropy};
  ReuseOptions author = relay;
  own<RectifyOptions>(author).selection = {.share = 1.0, .score = SelectionOptions::Score::author};
  all.insert(all.end(), {relay, unsure, author});
  return all;
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
      const Run full = greedy(*engine, prompts[i], method("full"));
      CHECK(full.result.kv_computed == full.result.kv_entries);
      for (const bool prefix : {false, true}) {
        for (const ReuseOptions& reuse : everything(prefix)) {
          INFO("prompt " << i << ", " << reuse.method->name << (prefix ? ", with prefix" : ""));
          const Run other = greedy(*engine, prompts[i], reuse);
          CHECK(same(other, full));
          CHECK(other.result.kv_computed + reused(other.result) == other.result.kv_entries);
          // K and V of layer 0 depend on the token alone: a method may keep those that were placed.
          if (!prefix) CHECK(other.result.kv_computed > other.result.kv_entries - other.result.kv_entries / kLayers);
          if (!prefix && reuse.method == &rectify_method()) CHECK(other.result.kv_computed < other.result.kv_entries);
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
    const Run run = greedy(*engine, chain, reuse);
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
      const Run full = greedy(*engine, chain, method("full"));
      for (const std::string& name : plain_methods()) {
        INFO("agent " << agent << ", " << name);
        const Run other = greedy(*engine, chain, method(name));
        CHECK(same(other, full));
        CHECK(other.result.kv_computed < other.result.kv_entries);
        CHECK(other.result.kv_computed + reused(other.result) == other.result.kv_entries);
        CHECK(other.result.hops == static_cast<int>(agent) - 1);
      }
      // Deviations of exactly 0 choose nothing: only text runs behind the detection.
      ReuseOptions bare = method("rectify");
      own<RectifyOptions>(bare).selection = {.influence = false, .suffix = 0};
      const Run none = greedy(*engine, chain, bare);
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
    CHECK(same(greedy(*engine, chain, method("direct")), greedy(*engine, chain, method("full"))));
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

    const Segment segment(*backend, cache, 30, 70, std::vector<TokenId>(tokens.begin() + 30, tokens.begin() + 100));
    RopeTable angles(*backend, model->ropes);
    insert(*backend, angles, same_place, {30, &segment, 0, 70});
    insert(*backend, angles, elsewhere, {101, &segment, 0, 70});
    elsewhere.commit(171);
    const Segment moved(*backend, elsewhere, 101, 70, segment.tokens());
    insert(*backend, angles, back, {30, &moved, 0, 70});
    const auto read = [&](const KvCache& from, std::int32_t layer, std::int32_t begin) {
      const std::int64_t cols = static_cast<std::int64_t>(model->config.kv_heads) * model->config.head_dim;
      std::vector<float> all(static_cast<std::size_t>(2 * 70 * cols));
      const TensorView both = view_of(all.data(), 140, cols);
      backend->kv().load_kv(both.row_range(0, 70), both.row_range(70, 140), from.slab(layer), model->kv_shape(layer),
                            begin);
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
    CHECK_THROWS_AS(insert(*backend, angles, same_place, {100, &segment, 0, 70}), std::invalid_argument);
    CHECK_THROWS_AS(insert(*backend, angles, same_place, {0, &segment, 1, 70}), std::invalid_argument);
  }
}

TEST_CASE("segments of layers that differ in shape keep the bits of each, and pass over layers without KV", "[reuse]") {
  const auto backend = make_cpu_backend(1);
  ModelConfig config;
  config.layers = 5;
  config.head_dim = 16;
  config.rope_kinds = {RopeKind::local, RopeKind::global, RopeKind::local, RopeKind::local, RopeKind::global};
  const LayerRopes ropes(config);
  RopeTable angles(*backend, ropes);
  KvLayout layout{.shapes = {{2, 16, DType::bf16},
                             {1, 16, DType::bf16},
                             {0, 16, DType::bf16},
                             {1, 16, DType::bf16},
                             {0, 16, DType::bf16}},
                  .raw_keys = true};
  layout.hidden_width = 8;
  layout.hidden_layer = 4;  // of the layers that store no KV
  KvCache cache(*backend, layout, 64), other(*backend, layout, 64);
  const std::vector<std::int32_t> zero(20, 0);
  std::vector<std::int32_t> position(20);
  std::iota(position.begin(), position.end(), 0);
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    if (!layout.stores_kv(layer)) continue;
    const std::int64_t width = layout.shape(layer).width();
    std::vector<float> k(static_cast<std::size_t>(20 * width)), v(k.size());
    for (std::size_t i = 0; i < k.size(); ++i)
      k[i] = static_cast<float>(i % 13) + static_cast<float>(layer), v[i] = -k[i] - 0.5f;
    const KvSlab slab = cache.slab(layer);
    backend->kv().store_kv({&slab, 1}, layout.shape(layer), {zero, position, zero}, view_of(k.data(), 20, width),
                           view_of(v.data(), 20, width), angles.range(ropes.of(layer), 0, 20));
  }
  std::vector<float> hidden(20 * 8);
  std::iota(hidden.begin(), hidden.end(), 0.0f);
  backend->scatter_rows(cache.hidden(), view_of(hidden.data(), 20, 8), position);
  cache.commit(20);
  const std::vector<TokenId> tokens = random_tokens(10, 1);
  const Segment segment(*backend, cache, 5, 10, tokens);
  CHECK(segment.bytes() == 10 * (layout.token_bytes() + 8 * 2 + sizeof(TokenId)));
  CHECK(kv_on_host(*backend, segment) == kv_on_host(*backend, cache, 5, 10));
  CHECK(kv_on_host(*backend, segment).size() == 10 * 2 * (32 + 16 + 16));
  CHECK((segment.raw_keys(2).cols == 0 && segment.values(4).cols == 0));
  const auto in_host = segment.copy_to_host(), back = in_host->copy_to_device();
  backend->wait();
  insert(*backend, angles, other, {30, back.get(), 0, 10});
  CHECK(!back->is_uploading());
  other.commit(40);
  const Segment moved(*backend, other, 30, 10, tokens);
  CHECK(kv_on_host(*backend, moved) == kv_on_host(*backend, segment));
  CHECK(std::memcmp(moved.hidden().data, segment.hidden().data, 10 * 8 * 2) == 0);
  std::vector<std::byte> bytes;
  for (std::int32_t layer = 0; layer < layout.layers(); ++layer) {
    for (const ConstTensorView view : {segment.raw_keys(layer), segment.values(layer)})
      bytes.insert(bytes.end(), view.data, view.data + view.rows * view.cols * 2);
  }
  KvLayout plain = layout;
  plain.hidden_width = 0;
  CHECK(kv_on_host(*backend, Segment(*backend, plain, tokens, bytes)) == kv_on_host(*backend, segment));
  plain.shapes[2] = {1, 16, DType::bf16};
  KvCache another(*backend, plain, 64);
  CHECK_THROWS_AS(insert(*backend, angles, another, {0, &segment, 0, 10}), std::invalid_argument);
  CHECK_THROWS_AS(Segment(*backend, plain, tokens, bytes), std::invalid_argument);
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
    const Segment segment(*backend, producer, 40, 60, std::vector<TokenId>(tokens.begin() + 40, tokens.end()));
    RopeTable angles(*backend, model->ropes);
    insert(*backend, angles, consumer, {73, &segment, 0, 60});
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
        Run now = greedy(*engine, prompt, method(row.name));
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
    CHECK(same(greedy(*busy, beside, method(row.name), 8), greedy(*quiet, alone, method(row.name), 8)));
  }
  for (auto& other : others) CHECK(other.get().error.empty());
}

TEST_CASE("reuse: prefixes of any length are exact", "[reuse]") {
  for (const TinyOptions& model : kModels) {
    const auto plain = engine_of(model), cached = engine_of(model);
    const std::vector<TokenId> stem = random_tokens(150, 1);
    greedy(*cached, {{"", stem, nullptr, 0}}, method("prefix", true), 1);
    for (const std::int32_t length : {1, 15, 16, 17, 63, 64, 65, 128, 149, 150}) {
      std::vector<TokenId> tokens(stem.begin(), stem.begin() + length);
      tokens.push_back(255 -
                       (length < 150 ? stem[static_cast<std::size_t>(length)] : 0));  // another one than the stem's
      const std::vector<TokenId> tail = random_tokens(9, static_cast<std::uint64_t>(length));
      tokens.insert(tokens.end(), tail.begin(), tail.end());
      const std::vector<PromptPart> prompt = {{"", tokens, nullptr, 0}};
      const Run full = greedy(*plain, prompt, method("full"));
      INFO("common tokens: " << length);
      const Run exact = greedy(*cached, prompt, method("prefix", true));
      CHECK(same(exact, full));
      CHECK(exact.result.kv_computed == 10 * kLayers);
      CHECK(exact.result.hops == 0);
      const Run again = greedy(*cached, prompt, method("prefix", true));
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
  const Run first = greedy(*engine, {text(40, 1)}, method("prefix", true), 20);
  std::vector<TokenId> tokens = random_tokens(40, 1);
  tokens.insert(tokens.end(), first.result.tokens.begin(), first.result.tokens.end());
  const std::vector<PromptPart> follow = {{"", tokens, nullptr, 0}, text(5, 3)};
  const Run second = greedy(*engine, follow, method("prefix", true));
  CHECK(same(second, greedy(*engine, follow, method("full"))));
  const auto ran =
      static_cast<std::int64_t>(first.result.tokens.size()) - (first.result.reason == FinishReason::length ? 1 : 0);
  CHECK(second.result.kv_computed == (second.result.prompt_tokens - 40 - ran) * kLayers);

  // Behind a moved segment nothing is exact: only the text before it may become a prefix.
  const PromptPart moved = answer(*engine, {text(30, 4)}, 50, 5);
  const std::vector<PromptPart> prompt = {text(35, 6), moved, text(25, 7)};
  greedy(*engine, prompt, method("direct", true));
  const Run exact = greedy(*engine, prompt, method("prefix", true));
  CHECK(same(exact, greedy(*engine, prompt, method("full"))));
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
    greedy(*engine, prompt, method(first, true));
    const auto consume = [&](InferenceEngine& on) {
      GenerationRequest request;
      request.prompt = prompt;
      request.reuse = recording(method("rectify", true));
      const Run producer = run(on, std::move(request));
      REQUIRE(producer.result.segments[1]);
      PromptPart moved = question;
      moved.segment = producer.result.segments[1];
      return greedy(on, {text(31, 4), moved, text(12, 5)}, method("rectify"));
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
    greedy(*engine, {{"", stem, nullptr, 0}}, method("prefix", true), 1);
    const std::vector<PromptPart> prompt = {text(50, 3), part, text(10, 4)};
    const auto rest = static_cast<std::int64_t>(40 - common);
    INFO(common << " tokens in common");
    const Run direct = greedy(*engine, prompt, method("direct", true));
    CHECK(direct.result.uses[0].method->name == "prefix");
    CHECK(direct.result.uses[1].method->name == "direct");
    CHECK(direct.result.kv_computed == 10 * kLayers);
    CHECK(direct.result.hops == 1);
    ReuseOptions all = method("rectify", true);
    all.range = {0, 1, kLayers - 1};
    own<RectifyOptions>(all).selection.all = true;
    const Run exact = greedy(*engine, prompt, all);
    CHECK(exact.result.kv_computed == 10 * kLayers + rest * (kLayers - 1));
    CHECK(same(exact, greedy(*engine, prompt, method("full"))));
    ReuseOptions suffix = method("rectify", true);
    own<RectifyOptions>(suffix).selection = {.deviation = false, .influence = false, .suffix = 7};
    const std::int64_t chosen = std::min<std::int64_t>(rest, 7) * (kRange.end - kRange.detect);
    CHECK(greedy(*engine, prompt, suffix).result.kv_computed ==
          10 * kLayers + rest * (kRange.detect - kRange.start) + chosen);
    CHECK(greedy(*engine, prompt, method("rectify", true)).result.uses[1].method->name == "rectify");
    // Nothing inexact was kept as a prefix.
    CHECK(same(greedy(*engine, prompt, method("prefix", true)), exact));
  }
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
  const Run direct = greedy(*engine, {text(30, 1), part, text(10, 4)}, method("direct"));
  CHECK(same(direct, greedy(*engine, {text(30, 1), part, text(10, 4)}, method("full"))));
  CHECK(direct.result.kv_computed == (30 + 1 + 10) * kLayers);
  // As the whole prompt: the last token has none, so that all the rest is reused.
  CHECK(greedy(*engine, {part}, method("direct")).result.kv_computed == kLayers);
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
    const Run run = greedy(*engine, {text(20, 3), p, text(10, 4)}, reuse);
    CHECK(same(run, greedy(*engine, {text(20, 3), p, text(10, 4)}, method("full"))));
    CHECK(run.result.kv_computed == run.result.kv_entries);
    return run.result.uses[1];
  };
  ReuseOptions longer = method("rectify");
  longer.min_tokens = 41;
  CHECK_THAT(use(part, longer).reason, Contains("40 tokens") && Contains("41"));
  CHECK(use(part, longer).method->name == "full");
  PromptPart edited = part;
  std::vector<TokenId> ids = edited.tokens;
  ids[7] ^= 1;
  edited.tokens = ids;
  CHECK_THAT(use(edited, method("direct")).reason, Contains("other tokens"));
  CHECK_THAT(use(other_layer, method("rectify")).reason, Contains("no hidden states of layer 1"));
  CHECK(use({"", part.tokens, nullptr, 0}, method("rectify")).reason.empty());
  CHECK(greedy(*engine, {text(20, 3), other_layer, text(10, 4)}, method("direct")).result.uses[1].method->name ==
        "direct");

  GenerationRequest request;
  request.prompt = {text(5, 1)};
  request.reuse.method = find_method("rectify");  // neither the request nor the model has a range
  CHECK_THROWS_WITH(engine->submit(std::move(request)), Contains("has not been profiled"));
  update_calibration(*engine, [&](Calibration& now) { now.range = kRange; });
  ReuseOptions of_model = method("rectify");
  of_model.range = {};
  const Run relayed = greedy(*engine, {text(20, 3), part, text(10, 4)}, of_model);
  CHECK(same(relayed, greedy(*engine, {text(20, 3), part, text(10, 4)}, method("rectify"))));
}

TEST_CASE("reuse: a text whose segment was evicted is computed, and is told as lost", "[reuse]") {
  const auto small = engine_of({}, {.segment_budget_bytes = 100 << 10});
  const PromptPart first = answer(*small, {text(30, 1)}, 40, 2);
  PromptPart last;
  for (std::uint64_t seed = 10; seed < 50; ++seed) last = answer(*small, {text(30, seed)}, 40, seed);
  REQUIRE(small->stats().segments.evicted > 0);
  const auto use = [&](const PromptPart& part) {
    return greedy(*small, {text(20, 3), part, text(10, 4)}, method("direct")).result.uses[1];
  };
  CHECK_FALSE(use(last).lost);
  CHECK(use(first).lost);
  CHECK_THAT(use(first).reason, Catch::Contains("evicted"));
  CHECK_FALSE(use({"", first.tokens, nullptr, 0}).lost);  // nobody promised its KV
}

TEST_CASE("reuse: values are not compared in a layer that reads those of another", "[reuse]") {
  const auto engine = engine_of({.heads = 4, .window = 21, .qk_norm = true, .gemma4 = true});
  const PromptPart part = answer(*engine, {text(30, 1)}, 40, 2);
  const std::vector<PromptPart> prompt = {text(20, 3), part, text(10, 4)};
  ReuseOptions asked = method("rectify");
  asked.range = {1, 4, 5};
  check_refused(*engine, asked, "layer 4 has no keys and values to compare, it reads those of layer 2");
  update_calibration(*engine, [&](Calibration& now) { now.range = {1, 4, 5}; });
  ReuseOptions of_model = method("rectify");
  of_model.range = {};
  const Run exact = greedy(*engine, prompt, of_model), full = greedy(*engine, prompt, method("full"));
  CHECK(same(exact, full));
  CHECK(exact.result.kv_computed == exact.result.kv_entries);
  CHECK_THAT(exact.result.uses[1].reason, Catch::Contains("layer 4 has no keys and values to compare"));
  of_model.range = {1, 3, 5};
  CHECK(greedy(*engine, prompt, of_model).result.uses[1].kv_reused > 0);
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
  CHECK(same(greedy(*engine, prompt, paper), greedy(*engine, prompt, given)));
  given.range = {1, 2, 3};
  CHECK_FALSE(same(greedy(*engine, prompt, paper), greedy(*engine, prompt, given)));
}

TEST_CASE("reuse: entries computed and reused add up to those of the prompt", "[reuse]") {
  const std::int64_t s = 30, r = 40, length = kRange.end - kRange.start, detect = kRange.detect - kRange.start;
  const std::int64_t detected = r * (kLayers - detect);  // entries behind the detection
  ReuseOptions range_alone = method("rectify"), suffix = method("rectify"), share = method("rectify");
  own<RectifyOptions>(range_alone).selection.all = true;
  own<RectifyOptions>(suffix).selection = {.deviation = false, .influence = false, .suffix = 7};
  own<RectifyOptions>(share).selection.share = 0.25;
  ReuseOptions unsure = method("rectify");
  own<RectifyOptions>(unsure).selection = {
      .suffix = 0, .head = 3, .share = 0.25, .score = SelectionOptions::Score::entropy};
  ReuseOptions author = method("rectify");
  own<RectifyOptions>(author).selection = {
      .suffix = 4, .head = 3, .share = 0.25, .score = SelectionOptions::Score::author};
  ReuseOptions from_zero = range_alone;
  from_zero.range.start = 0;
  check_computed(method("full"), {(s + r) * kLayers, 0});
  check_computed(method("direct"), {s * kLayers, r});
  // The layer range alone: of the segment's entries, 1 - (l_e - l_s) / L are reused.
  check_computed(range_alone, {s * kLayers + r * length, 0, detected});
  check_computed(suffix, {s * kLayers + r * detect + 7 * (length - detect), r - 7, detected});
  check_computed(share, {s * kLayers + r * detect + 10 * (length - detect), r - 10, detected});
  check_computed(from_zero, {s * kLayers + r * kRange.end, 0, r * (kLayers - kRange.detect)});
  check_computed(unsure, {s * kLayers + 10 * length, r - 10});  // no detection: the others are not computed at all
  check_computed(author, {s * kLayers + 10 * length, r - 10});
}

TEST_CASE("reuse: layers and numbers that a method cannot take are errors, never replaced", "[reuse]") {
  const auto engine = engine_of();
  update_calibration(*engine, [&](Calibration& now) { now.range = kRange; });
  for (const char* name : {"rectify", "direct", "full"}) {
    ReuseOptions beyond = method(name);
    beyond.range = {0, 1, kLayers};  // its layers are 0 to kLayers - 1
    check_refused(*engine, beyond, "expected 0 <= start < detect < end < 6, found start 0, detect 1, end 6");
    beyond.range = {2, 1, 3};
    check_refused(*engine, beyond, "found start 2, detect 1, end 3");
  }
  for (const Method* each : methods()) {
    if (!needs_group(*each)) continue;
    ReuseOptions group = method(each->name);
    group.range = LayerRange::group(1, kLayers);
    check_refused(*engine, group, "expected start < end < 6");
  }
  ReuseOptions paper = method("rectify");
  own<RectifyOptions>(paper).selection = SelectionOptions::by_paper();
  paper.range = {0, 2, 5};
  own<RectifyOptions>(paper).reuse = 0.7;
  check_refused(*engine, paper, "expected at most 0.667");
  own<RectifyOptions>(paper).reuse = 0.0;
  own<RectifyOptions>(paper).selection.share = std::nan("");
  check_refused(*engine, paper, "selection.share is nan");
}

TEST_CASE("reuse: rectify leaves what is asked, from two segments and in steps of any size", "[reuse]") {
  for (const SelectionOptions& selection : {SelectionOptions::by_paper(), SelectionOptions::by_author()}) {
    ReuseOptions reuse = method("rectify");
    own<RectifyOptions>(reuse).selection = selection;
    own<RectifyOptions>(reuse).reuse = 0.7;
    check_left(reuse);
  }
}

TEST_CASE("reuse: the more rectify recomputes, the closer to full prefill", "[reuse]") {
  std::vector<ReuseOptions> ladder;
  for (const double share : {0.02, 0.5, 1.0}) {
    ladder.push_back(method("rectify"));
    ladder.back().range = {0, 1, kLayers - 1};
    own<RectifyOptions>(ladder.back()).selection = {.suffix = 0, .share = share};
  }
  check_ladder(ladder);
}

}  // namespace reuse_test
