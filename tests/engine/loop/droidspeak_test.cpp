// SPDX-License-Identifier: Apache-2.0
// KV between models (method droidspeak): what is equal bit for bit, what the oracle says, what is refused, and whose
// memory it is.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <future>
#include <utility>

#include "engine/cpu/cpu.h"
#include "engine/learning/profile_files.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/between_models.h"
#include "engine/reuse/droidspeak/droidspeak.h"
#include "tests/support/asking.h"
#include "tests/support/reuse_cases.h"
#include "tests/support/schedule_oracle.h"

namespace baton::test::droidspeak_test {
namespace {

constexpr std::int32_t kLayers = 6;

std::shared_ptr<StepEngine> engine_of(std::uint64_t seed, TinyOptions model = {}) {
  model.seed = seed;
  model.layers = std::max(model.layers, kLayers);
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, model);
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), LocalEngineOptions{});
}

ReuseOptions droidspeak(std::int32_t first, std::int32_t last) {
  ReuseOptions reuse;
  reuse.method = find_method("droidspeak");
  reuse.range = LayerRange::group(first, last);
  reuse.min_tokens = 1;
  reuse.prefix = false;
  return reuse;
}

ReuseOptions full() {
  ReuseOptions reuse;
  reuse.prefix = false;
  return reuse;
}

/// An answer of n tokens, kept for readers of any model.
PromptPart answer(InferenceEngine& author, std::size_t n, const ReuseOptions& reuse) {
  GenerationRequest request;
  request.prompt = {text(20, n)};
  request.reuse = reuse;
  request.reuse.record = true;
  request.output_readers = 4;
  request.export_output = true;
  request.forced = random_tokens(n, n + 1);
  const Run run = start(author, std::move(request)).get();
  REQUIRE(run.result.output);
  return {"answer", run.result.tokens, run.result.output};
}

/// The same for an engine of another model.
PromptPart portable(const InferenceEngine& author, const PromptPart& own) {
  PromptPart part{own.slot, own.tokens};
  part.imported_kv = author.exported_kv(own.segment);
  REQUIRE(part.imported_kv);
  return part;
}

}  // namespace

TEST_CASE("droidspeak: all layers recomputed are the reader's full prefill, bit for bit", "[reuse][droidspeak]") {
  for (const TinyOptions& model : kModels) {
    const auto author = engine_of(1, model), reader = engine_of(2, model);
    const ReuseOptions all = droidspeak(0, kLayers - 1);
    const PromptPart first = portable(*author, answer(*author, 50, all));
    const PromptPart second = portable(*author, answer(*author, 33, all));
    for (const auto& prompt : {std::vector<PromptPart>{text(20, 5), first, text(7, 6), second, text(3, 7)},
                               std::vector<PromptPart>{first, second}}) {
      const Run of = ask(*reader, prompt, all);
      CHECK(of.result.uses[prompt.size() == 2 ? 0 : 1].from_segment);
      CHECK(reused(of.result) == 0);
      CHECK(same(of, ask(*reader, prompt, full())));
    }
  }
}

TEST_CASE("another model's KV: methods that recompute every token leave nothing of it", "[reuse][droidspeak]") {
  const auto author = engine_of(1), reader = engine_of(2);
  int methods = 0;
  for (const ReuseOptions& reuse : recomputing_all(droidspeak(2, 4))) {
    if (!reads_other_models(*reuse.method)) continue;
    INFO(reuse.method->name);
    const PromptPart part = portable(*author, answer(*author, 40, reuse));
    const std::vector<PromptPart> prompt = {text(9, 1), part, text(5, 2)};
    const Run run = ask(*reader, prompt, reuse);
    CHECK(run.result.uses[1].from_segment);
    CHECK(reused(run.result) == 0);  // layer 0 is computed, too
    CHECK(same(run, ask(*reader, prompt, full())));
    ++methods;
  }
  CHECK(methods >= 1);
}

TEST_CASE("droidspeak: KV of an engine with the same weights is as good as one's own", "[reuse][droidspeak]") {
  const auto author = engine_of(1), reader = engine_of(1);
  std::vector<std::string> names = plain_methods();
  names.emplace_back("droidspeak");
  for (const std::string& method : names) {
    INFO(method);
    ReuseOptions reuse = droidspeak(2, 4);
    reuse.method = find_method(method);
    if (reuse.method->name == "rectify") reuse.range = {2, 3, 4};
    const PromptPart own = answer(*reader, 40, reuse), other = portable(*author, answer(*author, 40, reuse));
    const Run with_own = ask(*reader, {text(9, 1), own, text(5, 2)}, reuse);
    const Run with_other = ask(*reader, {text(9, 1), other, text(5, 2)}, reuse);
    CHECK(with_own.result.uses[1].from_segment);
    CHECK(with_other.result.uses[1].from_segment);
    CHECK(same(with_own, with_other));
  }
}

TEST_CASE("droidspeak: the group is recomputed from the author's hidden states, the rest is the author's",
          "[reuse][droidspeak]") {
  const TinyOptions exact{.layers = kLayers, .dtype = DType::f32, .kv_dtype = DType::f32};
  const auto author = engine_of(1, exact), reader = engine_of(2, exact);
  const auto backend = make_cpu_backend(1);
  TinyOptions of_reader = exact;
  of_reader.seed = 2;
  const auto model = make_tiny_model(*backend, of_reader);
  for (const auto& [first, last] : {std::pair{0, 1}, {1, 3}, {2, 5}, {4, 5}}) {
    INFO("layers " << first << " to " << last);
    const ReuseOptions reuse = droidspeak(first, last);
    const PromptPart part = portable(*author, answer(*author, 30, reuse));
    const std::vector<PromptPart> prompt = {text(8, 3), part, text(6, 4)};
    const Run run = ask(*reader, prompt, reuse);
    const std::int32_t group = last - first + 1;
    CHECK(reused(run.result) == 30 * (kLayers - group));
    CHECK(run.result.uses[1].reused_tokens == 30);

    Oracle oracle(*backend, *model);
    std::vector<TokenId> tokens;
    for (const PromptPart& one : prompt) tokens.insert(tokens.end(), one.tokens.begin(), one.tokens.end());
    std::vector<OracleCache> caches(1);
    OracleCache& cache = caches.front();
    cache.k.assign(kLayers, std::vector<Vec>(tokens.size()));
    cache.v = cache.k;
    cache.hidden.resize(tokens.size());
    cache.hidden_layer = first > 0 ? first : kLayers;  // of none: nothing keeps them
    cache.received.resize(tokens.size());
    const auto row = [](ConstTensorView view, std::int64_t i) {
      const float* values = view.f32() + i * view.stride;
      return Vec(values, values + view.cols);
    };
    StepRows rows;
    KvCache unused(*backend, model->kv_layout(), 1);
    rows.add_cache(&unused);
    for (std::int32_t at = 0; at < static_cast<std::int32_t>(tokens.size()); ++at) {
      const std::int32_t i = at - 8;
      const auto position = static_cast<std::size_t>(at);
      rows.add_row(0, at, tokens[position]);
      if (i < 0 || i >= 30) {
        rows.path.push_back({0, kLayers, -1});
        continue;
      }
      rows.path.push_back({first, last + 1, -1, false, first > 0});
      for (std::int32_t layer = 0; layer < kLayers; ++layer) {
        const auto l = static_cast<std::size_t>(layer);
        cache.k[l][position] = oracle.rotated(row(part.imported_kv->raw_keys(layer), i), at, layer);
        cache.v[l][position] = row(part.imported_kv->values(layer), i);
      }
      if (first > 0) cache.hidden[position] = row(part.imported_kv->hidden(), i);
    }
    rows.logits_rows = {static_cast<std::int32_t>(tokens.size()) - 1};
    const Vec expected = oracle.run(rows, caches, {}).front();
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - static_cast<double>(run.logits.front()[i])));
    CHECK(worst < 1e-4);
    const Run other = ask(*reader, prompt, full());
    CHECK(distance(run, other) > 1e-2);  // and not what the reader would have made itself
  }
}

TEST_CASE("droidspeak: what cannot be read is computed, and why is said", "[reuse][droidspeak]") {
  const auto author = engine_of(1), reader = engine_of(2);
  const PromptPart part = portable(*author, answer(*author, 40, droidspeak(2, 4)));
  const auto reason = [&](InferenceEngine& engine, const PromptPart& of, const ReuseOptions& reuse) {
    const Run run = ask(engine, {text(9, 1), of, text(5, 2)}, reuse);
    CHECK_FALSE(run.result.uses[1].from_segment);
    CHECK(same(run, ask(engine, {text(9, 1), of, text(5, 2)}, full())));
    return run.result.uses[1].reason;
  };
  CHECK(reason(*reader, part, droidspeak(1, 4)) == "its segment holds no hidden states of layer 1");
  CHECK(reason(*engine_of(2, {.kv_heads = 3}), part, droidspeak(2, 4)) == "its segment is from another model");
  CHECK(reason(*engine_of(2, {.layers = 7}), part, droidspeak(2, 4)) == "its segment is from another model");
  CHECK(reason(*engine_of(2, {.kv_dtype = DType::f32}), part, droidspeak(2, 4)) == "its segment is from another model");
  PromptPart other = part;
  std::vector<TokenId> ids = other.tokens;
  ids.front() ^= 1;
  other.tokens = ids;
  CHECK(reason(*reader, other, droidspeak(2, 4)) == "its segment holds other tokens");
  PromptPart none{"answer", part.tokens};
  none.why_no_kv = "nobody wrote it";
  CHECK(reason(*reader, none, droidspeak(2, 4)) == "nobody wrote it");
  for (const LayerRange& wrong : {LayerRange{}, LayerRange::group(3, 3), LayerRange::group(1, kLayers),
                                  LayerRange::group(-1, 2), LayerRange{1, 2, 3}}) {
    ReuseOptions reuse = droidspeak(0, 1);
    reuse.range = wrong;
    CHECK_THROWS_WITH(ask(*reader, {text(5, 1)}, reuse), Catch::Matchers::Contains("droidspeak needs the group"));
  }
}

TEST_CASE("droidspeak: models that differ in what KV hangs on are told apart", "[reuse][droidspeak]") {
  const auto backend = make_cpu_backend(1);
  const auto base = make_tiny_model(*backend, {});
  const auto difference = [&](const TinyOptions& options) {
    return kv_difference(*base, *make_tiny_model(*backend, options));
  };
  CHECK(difference({.seed = 5}).empty());
  CHECK(difference({.ffn_width = 96, .context = 128}).empty());
  CHECK(difference({.layers = 4}) == "they differ in layers: 3 and 4");
  CHECK(difference({.width = 64}) == "they differ in hidden width: 48 and 64");
  CHECK(difference({.kv_heads = 3}) == "they differ in KV heads: 2 and 3");
  CHECK(difference({.head_dim = 8}) == "they differ in head width: 16 and 8");
  CHECK(difference({.qk_norm = true}) == "only one of them normalises its keys");
  CHECK(difference({.kv_dtype = DType::f32}) == "they differ in the KV type: bf16 and f32");
  std::string json = byte_tokenizer_json();
  json.insert(json.size() - 1, " ");
  KvFormat other = kv_format_of(*base);
  CHECK(kv_difference(kv_format_of(*base), other).empty());
  other.tokenizer = Tokenizer::parse(json, "tokenizer.json")->identity();
  CHECK(kv_difference(kv_format_of(*base), other) == "their tokenizers differ");
}

TEST_CASE("droidspeak: KV outlives its author's engine for as long as somebody has it", "[reuse][droidspeak]") {
  const auto reader = engine_of(2);
  const ReuseOptions reuse = droidspeak(1, 3);
  PromptPart part;
  Run before;
  {
    const auto author = engine_of(1);
    part = portable(*author, answer(*author, 40, reuse));
    before = ask(*reader, {text(9, 1), part, text(5, 2)}, reuse);
  }
  CHECK(same(before, ask(*reader, {text(9, 1), part, text(5, 2)}, reuse)));
}

TEST_CASE("droidspeak: the cheapest group that leaves little is taken", "[reuse][droidspeak]") {
  const std::vector<GroupPoint> points = {{0, 1, 0.7},  {2, 3, 0.4}, {0, 3, 0.5},
                                          {2, 5, 0.08}, {0, 5, 0.0}, {4, 5, 0.9}};
  CHECK(frontier(points) == std::vector<GroupPoint>{{2, 3, 0.4}, {2, 5, 0.08}, {0, 5, 0.0}});
  const auto is = [](const LayerRange& range, std::int32_t start, std::int32_t end) {
    return range.start == start && range.detect == start && range.end == end;
  };
  CHECK(is(cheapest_group(points, 0.1, 6), 2, 5));
  CHECK(is(cheapest_group(points, 0.5, 6), 2, 3));
  CHECK(is(cheapest_group(points, 0.01, 6), 0, 5));
  CHECK(is(cheapest_group({{0, 1, 0.7}}, 0.1, 6), 0, 5));
}

TEST_CASE("droidspeak: larger groups are those that begin alike and leave less", "[reuse][droidspeak]") {
  const std::vector<GroupPoint> points = {{0, 1, 0.7},  {2, 9, 0.01}, {2, 3, 0.4}, {0, 9, 0.0},
                                          {2, 7, 0.09}, {2, 5, 0.08}, {4, 9, 0.3}};
  using Ends = std::vector<std::int32_t>;
  CHECK(ends_of(LayerRange::group(2, 3), points) == Ends{3, 5, 9});
  CHECK(ends_of(LayerRange::group(2, 5), points) == Ends{5, 9});
  CHECK(ends_of(LayerRange::group(2, 4), points) == Ends{4, 5, 9});  // a group that was not measured
  CHECK(ends_of(LayerRange::group(6, 9), points) == Ends{9});
}

TEST_CASE("droidspeak: the group follows from the rows and the time that is left", "[reuse][droidspeak]") {
  ReuseOptions reuse = droidspeak(2, 3);
  reuse.larger_ends = {4, 5};
  own<DroidspeakOptions>(reuse).ttft_ms = 100;
  const std::vector<PlacedSegment> segments = {{.begin = 20, .text_length = 60}};
  const auto end = [&](double left, double row, std::int32_t prefix = 0) {
    return group_in_time(reuse, reuse.range, {100, prefix, segments, kLayers, {left, row}}).end;
  };
  CHECK(end(69, 1) == 3);  // 40 rows of text, and 60 in 3 of 6 layers, take 70
  CHECK(end(70, 1) == 4);
  CHECK(end(79, 1) == 4);
  CHECK(end(80, 1) == 5);
  CHECK(end(80, 2) == 3);
  CHECK(end(-5, 1) == 3);
  CHECK(end(80, 0) == 3);      // nothing is known of the rows
  CHECK(end(40, 1, 50) == 5);  // 20 rows of text, and 30 in 4 of 6 layers
  CHECK(end(39, 1, 50) == 4);
  own<DroidspeakOptions>(reuse).ttft_ms = 0;
  CHECK(end(80, 1) == 3);
}

TEST_CASE("droidspeak: a prompt that has time recomputes more layers", "[reuse][droidspeak]") {
  const auto author = engine_of(1), reader = engine_of(2);
  ReuseOptions reuse = droidspeak(2, 3);
  reuse.larger_ends = {4, 5};
  const PromptPart part = portable(*author, answer(*author, 30, reuse));
  const std::vector<PromptPart> prompt = {text(8, 3), part, text(6, 4)};
  const auto reason = [](const Run& run) { return run.result.uses[1].reason; };
  const std::string smallest = "layers 2 to 3 recomputed";
  own<DroidspeakOptions>(reuse).ttft_ms = 1e9;
  CHECK(reason(ask(*reader, prompt, reuse)) == smallest);  // the first prompt shows how long a row takes
  const Run in_time = ask(*reader, prompt, reuse);
  CHECK(reason(in_time) == "layers 2 to 5 recomputed");
  CHECK(reused(in_time.result) == 30 * (kLayers - 4));
  CHECK(same(in_time, ask(*reader, prompt, droidspeak(2, 5))));
  own<DroidspeakOptions>(reuse).ttft_ms = 1e-3;
  CHECK(reason(ask(*reader, prompt, reuse)) == smallest);
  own<DroidspeakOptions>(reuse).ttft_ms = 0;
  CHECK(reason(ask(*reader, prompt, reuse)).empty());

  own<DroidspeakOptions>(reuse).ttft_ms = 1e9;
  std::promise<void> blocked, arrived;
  GenerationRequest first;  // keeps the engine's thread until two other prompts have arrived
  first.prompt = {text(5, 9)};
  first.forced = {1, 2, 3, 4};
  first.callbacks.on_logits = [&, once = false](std::span<const float>) mutable {
    if (std::exchange(once, true)) return;
    blocked.set_value();
    arrived.get_future().wait();
  };
  auto decoding = result_of(*reader, std::move(first));
  blocked.get_future().wait();
  std::vector<std::future<Run>> both;
  for (int i = 0; i < 2; ++i) {
    GenerationRequest request;
    request.prompt = prompt;
    request.reuse = reuse;
    request.forced = {1, 2};
    both.push_back(start(*reader, std::move(request)));
  }
  arrived.set_value();
  for (std::future<Run>& run : both) CHECK(reason(run.get()) == smallest);
  CHECK(decoding.get().error.empty());
}

}  // namespace baton::test::droidspeak_test
