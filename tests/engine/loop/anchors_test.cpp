// SPDX-License-Identifier: Apache-2.0
// Anchors through the engine: what is exact, what is corrected, what stays bounded.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/anchors/anchors.h"
#include "tests/support/asking.h"
#include "tests/support/folders.h"
#include "tests/support/tiny_engine.h"

namespace anchors_test {

using namespace baton;
using namespace baton::test;

namespace {

ReuseOptions anchors(AnchorOptions::Gate gate = AnchorOptions::Gate::none) {
  ReuseOptions reuse;
  reuse.method = find_method("anchors");
  reuse.min_tokens = 1;
  reuse.prefix = false;
  reuse.record = true;
  own<AnchorOptions>(reuse).gate = gate;
  own<AnchorOptions>(reuse).check = 0;
  return reuse;
}

/// An answer of given tokens, as a placeholder of later prompts.
PromptPart answer(InferenceEngine& engine, std::vector<TokenId> tokens, std::uint64_t seed,
                  const std::string& slot = "answer") {
  GenerationRequest request;
  request.prompt = {text(20, seed)};
  request.reuse = anchors();
  request.output_readers = 4;
  request.output_slot = slot;
  request.forced = tokens;
  const Run made = start(engine, std::move(request)).get();
  REQUIRE(made.result.output);
  return {slot, std::move(tokens), made.result.output, 0};
}

/// Role text, an answer, text, another answer, text.
std::vector<PromptPart> prompt_of(InferenceEngine& engine, std::uint64_t first, std::uint64_t second) {
  return {text(10, 1), answer(engine, random_tokens(40, first), 7, "first"), text(5, 2),
          answer(engine, random_tokens(30, second), 8, "second"), text(6, 3)};
}

ReuseOptions named(const std::string& method) {
  ReuseOptions reuse = anchors();
  reuse.method = find_method(method);
  return reuse;
}

}  // namespace

TEST_CASE("anchors: the first prompt is computed in full, the same prompt again is nearly exact", "[anchors]") {
  for (const TinyOptions& model : {TinyOptions{}, TinyOptions{.kv_dtype = DType::f32}, TinyOptions{.qk_norm = true}}) {
    const auto engine = tiny_engine({}, model);
    const std::vector<PromptPart> prompt = prompt_of(*engine, 11, 12);
    const Run full = ask(*engine, prompt, named("full")), direct = ask(*engine, prompt, named("direct"));
    const Run first = ask(*engine, prompt, anchors());
    CHECK(same(first, full));
    CHECK(first.result.kv_computed == first.result.kv_entries);
    CHECK(first.result.hops == 0);
    CHECK(first.result.uses[1].reason == "the pool has no anchor yet");
    const Run again = ask(*engine, prompt, anchors());
    CHECK(again.result.uses[1].method->name == "anchors");
    CHECK(again.result.uses[3].from_segment);
    CHECK(again.result.hops == 1);
    CHECK(again.result.kv_computed == (10 + 5 + 6) * 3);  // the text alone, in three layers
    CHECK(distance(again, full) < 0.1 * distance(direct, full));
    AnchorOptions with_text = own<AnchorOptions>(anchors());
    with_text.text = AnchorOptions::Text::offset;
    ReuseOptions less = anchors();
    own<AnchorOptions>(less) = with_text;
    const Run fewer = ask(*engine, prompt, less);
    CHECK(fewer.result.kv_computed == (10 + 1) * 3);  // all but the last token of the text behind placeholders
    CHECK(distance(fewer, full) < 0.1 * distance(direct, full));
  }
}

TEST_CASE("anchors: after an answer that was cut off, the text behind a whole one is computed", "[anchors]") {
  const auto engine = tiny_engine();
  ReuseOptions reuse = anchors();
  own<AnchorOptions>(reuse).text = AnchorOptions::Text::offset;
  GenerationRequest request;
  request.prompt = {text(20, 7)};
  request.reuse = anchors();
  request.output_readers = 4;
  request.output_slot = "answer";
  request.max_tokens = 24;  // the last token has no KV, so the anchor has none of the text behind it
  const Run cut = start(*engine, std::move(request)).get();
  REQUIRE(cut.result.output);
  REQUIRE(engine->segment(cut.result.output)->length() == 23);
  ask(*engine, {text(10, 1), {"answer", cut.result.tokens, cut.result.output, 0}, text(6, 3)}, reuse);
  const Run whole = ask(*engine, {text(10, 1), answer(*engine, random_tokens(12, 9), 7), text(6, 3)}, reuse);
  CHECK(whole.result.uses[1].method->name == "anchors");
  CHECK(whole.result.kv_computed == (10 + 6) * 3);
}

TEST_CASE("anchors: no offsets are direct reuse, bit for bit", "[anchors]") {
  const auto engine = tiny_engine();
  const std::vector<PromptPart> prompt = prompt_of(*engine, 11, 12);
  const Run direct = ask(*engine, prompt, named("direct"));
  ask(*engine, prompt, anchors());
  ReuseOptions none = anchors();
  own<AnchorOptions>(none).offsets = AnchorOptions::Offsets::none;
  CHECK(same(ask(*engine, prompt, none), direct));
  own<AnchorOptions>(none).rotate = false;
  CHECK(!same(ask(*engine, prompt, none), direct));
}

TEST_CASE("anchors: every token recomputed is full prefill, bit for bit", "[anchors]") {
  const auto engine = tiny_engine();
  ReuseOptions reuse = anchors(AnchorOptions::Gate::error);
  own<AnchorOptions>(reuse).size = 2;
  own<AnchorOptions>(reuse).trust = -1.0f;  // corrected and recomputed, always
  own<AnchorOptions>(reuse).refuse = 1e9f;
  own<AnchorOptions>(reuse).recompute = 1.0;
  for (std::uint64_t seed = 0; seed < 3; ++seed) ask(*engine, prompt_of(*engine, 20 + seed, 30 + seed), reuse);
  const std::vector<PromptPart> prompt = prompt_of(*engine, 24, 34);
  const Run run = ask(*engine, prompt, reuse);
  CHECK(run.result.uses[1].method->name == "anchors");
  CHECK(same(run, ask(*engine, prompt, named("full"))));
}

TEST_CASE("anchors: a placeholder that cannot be predicted is computed alone", "[anchors]") {
  const auto engine = tiny_engine();
  ReuseOptions reuse = anchors(AnchorOptions::Gate::error);
  own<AnchorOptions>(reuse).size = 4;
  own<AnchorOptions>(reuse).trust = own<AnchorOptions>(reuse).refuse = 1e-6f;  // unrelated random texts correct nothing
  std::vector<Run> runs;
  for (std::uint64_t seed = 0; seed < 12; ++seed)
    runs.push_back(ask(*engine, prompt_of(*engine, 20, 40 + seed), reuse));  // the first answer is always the same
  const Run& last = runs.back();
  CHECK(last.result.uses[3].method->name == "full");
  CHECK(last.result.uses[3].reason.find("expected error") != std::string::npos);
  REQUIRE(!last.result.uses[3].numbers.empty());
  CHECK(last.result.uses[3].numbers[3].value > 1e-6f);
  CHECK(last.result.uses[1].method->name == "anchors");  // the same text was seen in this place
}

TEST_CASE("anchors: one turn in so many is computed in full, to measure", "[anchors]") {
  const auto engine = tiny_engine();
  ReuseOptions reuse = anchors();
  own<AnchorOptions>(reuse).check = 4;
  std::string kinds;
  for (int i = 0; i < 10; ++i) kinds += ask(*engine, prompt_of(*engine, 11, 12), reuse).result.hops == 0 ? 'F' : 'a';
  CHECK(kinds == "FaaaFaaaFa");
}

TEST_CASE("anchors: prompts at the same time lose none of each other's anchors", "[anchors]") {
  const auto engine = tiny_engine();
  ReuseOptions reuse = anchors(AnchorOptions::Gate::error);  // with fewer than ten, every text is learned
  std::vector<std::vector<PromptPart>> prompts;
  for (std::uint64_t i = 0; i < 8; ++i) prompts.push_back(prompt_of(*engine, 100 + i, 200 + i));
  std::vector<std::future<Run>> runs;
  for (auto& prompt : prompts) {
    GenerationRequest request;
    request.prompt = prompt;
    request.reuse = reuse;
    request.forced = {1, 2, 3};
    runs.push_back(start(*engine, std::move(request)));
  }
  for (auto& run : runs) CHECK(run.get().result.error.empty());
  anchor_store_of(*engine->method_state(anchors_method())).flush();
  CHECK(anchor_store_of(*engine->method_state(anchors_method())).stats().anchors == 16);
}

TEST_CASE("anchors: 2000 prompts stay in the budget, beside segments", "[anchors]") {
  LocalEngineOptions options;
  options.segment_budget_bytes = 1 << 20;
  options.method_budget_bytes = 1 << 18;
  const auto engine = tiny_engine(options, {.layers = 2, .width = 32, .heads = 2, .kv_heads = 1});
  ReuseOptions reuse = anchors(AnchorOptions::Gate::error);
  own<AnchorOptions>(reuse).size = 20;
  std::int64_t after_warm_up = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ask(*engine, {text(4, 1), answer(*engine, random_tokens(30, i), 7), text(3, 2)}, reuse, {1});
    const EngineStats stats = engine->stats();
    REQUIRE(stats.method_bytes <= options.method_budget_bytes);
    REQUIRE(stats.segments.bytes + stats.segments.charged_bytes <= options.segment_budget_bytes);
    if (i == 200) after_warm_up = stats.method_bytes;
  }
  anchor_store_of(*engine->method_state(anchors_method())).flush();
  const EngineStats stats = engine->stats();
  CHECK(stats.method_bytes <= after_warm_up);
  CHECK(stats.segments.charged_bytes == stats.method_bytes);
  CHECK(stats.segments.bytes == 0);  // all handles are gone
}

namespace {

/// K of every row of a layer, turned to its position in the prompt that it was taken from.
std::vector<float> turned_keys(const Model& model, const Segment& segment, std::int32_t layer) {
  const ConstTensorView raw = segment.raw_keys(layer);
  const auto width = static_cast<std::size_t>(model.config.head_dim), half = width / 2;
  std::vector<float> keys(static_cast<std::size_t>(raw.rows * raw.cols));
  std::vector<std::int32_t> positions(static_cast<std::size_t>(raw.rows));
  std::iota(positions.begin(), positions.end(), segment.position);
  std::vector<float> cos(positions.size() * half), sin(cos.size());
  model.ropes.distinct()[0].angles(cos, sin, positions);
  for (std::size_t row = 0; row < positions.size(); ++row) {
    for (std::size_t c = 0; c < static_cast<std::size_t>(raw.cols); ++c) {
      const std::size_t j = c % width, pair = j < half ? c + half : c - half;
      const float own = bf16_to_f32(raw.bf16(static_cast<std::int64_t>(row))[c]);
      const float other = bf16_to_f32(raw.bf16(static_cast<std::int64_t>(row))[pair]);
      const float a = cos[row * half + j % half], b = sin[row * half + j % half];
      keys[row * static_cast<std::size_t>(raw.cols) + c] = j < half ? own * a - other * b : own * a + other * b;
    }
  }
  return keys;
}

std::vector<float> plain_keys(const Segment& segment, std::int32_t layer) {
  const ConstTensorView raw = segment.raw_keys(layer);
  std::vector<float> keys;
  for (std::int64_t row = 0; row < raw.rows; ++row) {
    for (std::int64_t c = 0; c < raw.cols; ++c) keys.push_back(bf16_to_f32(raw.bf16(row)[c]));
  }
  return keys;
}

}  // namespace

TEST_CASE("anchors: offsets before RoPE predict later placeholders better than the public code's frame", "[anchors]") {
  auto backend = make_cpu_backend(2);
  auto nano = open_model(*backend, source_folder() / "samples/models/nano", {});
  const auto engine = std::make_shared<StepEngine>(std::move(backend), std::move(nano), LocalEngineOptions{});
  const Model* model = &engine->model();
  const auto encode = [&](const std::string& words) {
    return model->tokenizer->encode(words, SpecialTokens::recognise);
  };
  const std::string open = "<|im_start|>system\nYou are ", close = "<|im_end|>\n<|im_start|>assistant\n";
  struct Pair {
    std::shared_ptr<const Segment> base, truth;
  };
  std::vector<Pair> pairs;
  for (int i = 0; i < 16; ++i) {
    const std::string question = "Ana has " + std::to_string(10 + 3 * i) + " red apples and " +
                                 std::to_string(4 + i * (i % 3)) + (i % 2 == 0 ? " pears" : " very small green pears") +
                                 ". How many does she have?";
    const auto part = [&](const std::string& words) { return PromptPart{"", encode(words), nullptr, 0}; };
    GenerationRequest writer;
    writer.prompt = {part(open + "a mathematical analyst.<|im_end|>\n<|im_start|>user\nQuestion:\n"), part(question),
                     part(close)};
    writer.reuse = anchors();
    writer.output_readers = 1;
    writer.max_tokens = 60;
    const Run written = start(*engine, std::move(writer)).get();
    REQUIRE(written.result.output);
    GenerationRequest reader;
    reader.prompt = {part(open + "an inspector, who checks.<|im_end|>\n<|im_start|>user\nQuestion:\n"), part(question),
                     part("\n\nAnalyst:\n"), PromptPart{"answer", written.result.tokens, nullptr, 1}, part(close)};
    reader.reuse = anchors();
    reader.forced = {1};
    const Run read = start(*engine, std::move(reader)).get();
    REQUIRE(read.result.segments[3]);
    pairs.push_back({engine->segment(written.result.output), engine->segment(read.result.segments[3])});
  }
  // The mean of the other texts' offsets, token by token, in both frames; what it leaves of each text's own offset.
  double canonical = 0, absolute = 0;
  for (std::int32_t layer = 1; layer < model->config.layers; ++layer) {
    for (const bool turned : {false, true}) {
      const auto keys = [&](const Segment& segment) {
        return turned ? turned_keys(*model, segment, layer) : plain_keys(segment, layer);
      };
      for (std::size_t i = 0; i < pairs.size(); ++i) {
        const std::vector<float> base = keys(*pairs[i].base), truth = keys(*pairs[i].truth);
        std::vector<float> offset(base.size(), 0.0f), seen(base.size(), 0.0f);
        for (std::size_t j = 0; j < pairs.size(); ++j) {
          if (j == i) continue;
          const std::vector<float> other = keys(*pairs[j].base), there = keys(*pairs[j].truth);
          for (std::size_t c = 0; c < std::min({base.size(), other.size(), there.size()}); ++c) {
            offset[c] += there[c] - other[c];
            seen[c] += 1;
          }
        }
        for (std::size_t c = 0; c < std::min(base.size(), truth.size()); ++c) {
          const double left = truth[c] - base[c] - (seen[c] > 0 ? offset[c] / seen[c] : 0.0f);
          (turned ? absolute : canonical) += left * left;
        }
      }
    }
  }
  WARN("error of keys left: canonical frame " << std::sqrt(canonical) << ", public code's frame " << std::sqrt(absolute)
                                              << ", ratio " << std::sqrt(canonical / absolute));
  CHECK(canonical < 0.5 * absolute);
}

}  // namespace anchors_test
