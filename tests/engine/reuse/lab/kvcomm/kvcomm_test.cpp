// SPDX-License-Identifier: Apache-2.0
// Method kvcomm: its rules by hand, and the KV that it places, through the engine. "write a run of kvcomm" records
// texts of nano with what the rules say of them; kvcomm_test.py computes the same from the paper.
#include "engine/reuse/lab/kvcomm/kvcomm.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/cpu/cpu.h"
#include "engine/kv/segment.h"
#include "engine/loop/step_engine.h"
#include "engine/registry.h"
#include "engine/reuse/method_state.h"
#include "tests/support/asking.h"
#include "tests/support/folders.h"
#include "tests/support/tiny_engine.h"

namespace kvcomm_test {

using namespace baton;
using namespace baton::test;

namespace {

/// A text of one-channel keys and values in two layers, (key, value) for each token; both layers have the same.
KvcommRows rows_of(const std::vector<std::pair<float, float>>& tokens) {
  KvcommRows rows{{{1, 1}}, static_cast<std::int32_t>(tokens.size()), {}};
  for (int layer = 0; layer < 2; ++layer) {
    for (const auto& [key, value] : tokens) {
      rows.kv.push_back(f32_to_bf16(key));
      rows.kv.push_back(f32_to_bf16(value));
    }
  }
  return rows;
}

std::shared_ptr<KvcommAnchor> known(const std::vector<std::pair<float, float>>& tokens, std::int64_t activations = 0) {
  auto anchor = std::make_shared<KvcommAnchor>();
  anchor->base = std::make_shared<const KvcommRows>(rows_of(tokens));
  anchor->activations = activations;
  return anchor;
}

ReuseOptions kvcomm(const KvcommOptions& options = {}) {
  ReuseOptions reuse;
  reuse.method = find_method("kvcomm");
  reuse.min_tokens = 1;
  reuse.prefix = false;
  reuse.record = true;
  reuse.own = options;
  return reuse;
}

ReuseOptions named(const std::string& method) {
  ReuseOptions reuse = kvcomm();
  reuse.method = find_method(method);
  reuse.own.reset();
  return reuse;
}

/// An answer of given tokens, as a placeholder of later prompts.
PromptPart answer(InferenceEngine& engine, std::vector<TokenId> tokens, const std::string& slot) {
  GenerationRequest request;
  request.prompt = {text(20, 7)};
  request.reuse = kvcomm();
  request.output_readers = 4;
  request.output_slot = slot;
  request.forced = tokens;
  const Run made = start(engine, std::move(request)).get();
  REQUIRE(made.result.output);
  return {slot, std::move(tokens), made.result.output, 0};
}

}  // namespace

TEST_CASE("kvcomm: the gate wants two texts that are as long, and little entropy", "[kvcomm]") {
  const KvcommRows one = rows_of({{9, 1}});
  const auto gate = [](const KvcommPool& pool, const KvcommRows& text) { return kvcomm_gate({}, pool, text); };
  CHECK(gate({}, one).becomes_anchor);
  CHECK(gate({known({{9, 1}})}, one).becomes_anchor);  // even the same text
  // Distances are those of values, here sqrt(2) |difference| for two layers; keys and tokens behind take no part.
  const KvcommPool pool = {known({{0, 1}, {0, 50}}), known({{0, 3}})};
  const KvcommGate found = gate(pool, one);
  REQUIRE(found.distances.size() == 2);
  CHECK(found.distances[0] == 0.0);
  CHECK(found.distances[1] == Approx(2 * std::sqrt(2.0)));
  const double w = 1 / (1 + std::exp(-2 * std::sqrt(2.0))), entropy = -w * std::log(w) - (1 - w) * std::log(1 - w);
  CHECK(found.weights[0] == Approx(w));
  CHECK(found.entropy == Approx(entropy));
  CHECK(found.becomes_anchor == (entropy > double{0.3f} * std::log(2.0)));
  KvcommOptions wide;
  wide.gamma = static_cast<float>(entropy / std::log(2.0) + 0.01);
  CHECK(!kvcomm_gate(wide, pool, one).becomes_anchor);
  CHECK(gate(pool, rows_of({{0, 1}, {0, 50}})).becomes_anchor);  // one anchor is as long
  CHECK(gate({pool[0], pool[0]}, one).becomes_anchor);           // equally near: the largest entropy
}

TEST_CASE("kvcomm: the nucleus stays below top_p, and one weight above it makes all count", "[kvcomm]") {
  using Found = std::vector<std::size_t>;
  CHECK(kvcomm_nucleus(std::vector{0.2, 0.5, 0.3}, 0.9) == Found{1, 2});
  CHECK(kvcomm_nucleus(std::vector{0.2, 0.5, 0.3}, 0.6) == Found{1});
  CHECK(kvcomm_nucleus(std::vector{0.01, 0.95, 0.04}, 0.9) == Found{1, 2, 0});
}

TEST_CASE("kvcomm: the least activated of the oldest texts leaves a full pool", "[kvcomm]") {
  const auto pool = [](const std::vector<int>& activations) {
    KvcommPool made;
    for (const int one : activations) made.push_back(known({{0, 0}}, one));
    return made;
  };
  CHECK(kvcomm_evicted(pool({3, 2, 2, 0}), 3) == 1);  // the oldest of equals; the last is not in the window
  CHECK(kvcomm_evicted(pool({3, 2, 2, 0}), 4) == 3);
  CHECK(kvcomm_evicted(pool({3, 2}), 5) == 1);
}

TEST_CASE("kvcomm: each token is weighed by its own distances, keys and values apart, and layer 0 is not corrected",
          "[kvcomm]") {
  const KvcommPool pool = {known({{1, 0}, {0, 0}}), known({{0, 0}, {0, 2}, {8, 8}})};
  pool[0]->offset = rows_of({{4, 8}, {4, 8}});
  pool[1]->offset = rows_of({{0, 0}, {0, 0}, {64, 64}});
  const KvcommRows text = rows_of({{0, 0}, {0, 0}});
  // Differences of the first token's keys: 1 and 0; of the second's values: 0 and 2; the others are equally far.
  const double near = 1 / (1 + std::exp(-1.0)), nearest = 1 / (1 + std::exp(-2.0));
  const KvcommWeights weights = kvcomm_token_weights(pool, text);
  const auto is = [](const std::vector<double>& found, const std::vector<double>& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(found.at(i) == Approx(expected[i]));
  };
  is(weights.keys, {1 - near, 0.5, near, 0.5});
  is(weights.values, {0.5, nearest, 0.5, 1 - nearest});
  const KvcommRows offset = kvcomm_offset(pool, text);
  for (std::int32_t token = 0; token < 2; ++token) {
    CHECK(bf16_to_f32(offset.row(0, token)[0]) == 0.0f);
    CHECK(bf16_to_f32(offset.row(0, token)[1]) == 0.0f);
  }
  CHECK(bf16_to_f32(offset.row(1, 0)[0]) == Approx(4 * (1 - near)).epsilon(0.004));
  CHECK(bf16_to_f32(offset.row(1, 0)[1]) == 4.0f);
  CHECK(bf16_to_f32(offset.row(1, 1)[0]) == 2.0f);
  CHECK(bf16_to_f32(offset.row(1, 1)[1]) == Approx(8 * nearest).epsilon(0.004));
}

TEST_CASE("kvcomm: the KV that is placed is that of the rules, bit for bit", "[kvcomm]") {
  for (const TinyOptions& model : {TinyOptions{}, TinyOptions{.qk_norm = true}}) {
    const auto engine = tiny_engine({}, model);
    const PromptPart head = text(10, 1), tail = text(6, 2);
    KvcommOptions options;
    options.gamma = 1.0f;  // texts are shared as soon as two anchors are as long
    const auto prompt = [&](std::size_t length, std::uint64_t seed) {
      return std::vector<PromptPart>{head, answer(*engine, random_tokens(length, seed), "answer"), tail};
    };
    for (const std::uint64_t seed : {3, 4}) {
      const std::vector<PromptPart> longer = prompt(40 + seed, seed);
      const Run run = ask(*engine, longer, kvcomm(options));
      CHECK(same(run, ask(*engine, longer, named("full"))));
      CHECK(run.result.kv_computed == run.result.kv_entries);
    }
    const MethodState& state = *engine->method_state(kvcomm_method());
    REQUIRE(kvcomm_pools_of(state).size() == 1);
    const KvcommPool pool = kvcomm_pools_of(state).begin()->second;
    REQUIRE(pool.size() == 2);
    const std::vector<PromptPart> shared = prompt(30, 5);
    const Run run = ask(*engine, shared, kvcomm(options));
    CHECK(run.result.uses[1].method->name == "kvcomm");
    CHECK(run.result.kv_computed == (10 + 1) * 3);  // the text before, and the last token
    CHECK(kvcomm_pools_of(state).begin()->second.size() == 2);

    // The same KV as segments of another engine, which `direct` places as they are.
    const auto segment = engine->segment(shared[1].segment);
    const auto backend = make_cpu_backend(1);
    const KvcommRows base{width_of(segment->layout()), 30, kv_on_host(*backend, *segment)};
    KvcommRows corrected = base;
    const KvcommRows offset = kvcomm_offset(pool, base);
    for (std::size_t i = 0; i < base.kv.size(); ++i)
      corrected.kv[i] = f32_to_bf16(bf16_to_f32(base.kv[i]) + bf16_to_f32(offset.kv[i]));
    const auto imported = [&](const PromptPart& part, const KvcommRows& rows) {
      std::vector<std::uint16_t> bits;
      for (std::int32_t layer = 0; layer < rows.shape.layers(); ++layer) {
        const auto width = static_cast<std::ptrdiff_t>(rows.shape.layer(layer));
        for (const std::ptrdiff_t column : {std::ptrdiff_t{0}, width}) {
          for (std::int32_t token = 0; token < rows.length; ++token) {
            const auto row = rows.row(layer, token);
            bits.insert(bits.end(), row.begin() + column, row.begin() + column + width);
          }
        }
      }
      KvLayout layout = segment->layout();
      PromptPart made{part.slot.empty() ? "tail" : part.slot, part.tokens, nullptr, 0};
      made.imported_kv = std::make_shared<const Segment>(*backend, layout, part.tokens, std::as_bytes(std::span(bits)));
      return made;
    };
    const Run direct = ask(
        *engine, {head, imported(shared[1], corrected), imported(tail, kvcomm_following(pool, base))}, named("direct"));
    CHECK(direct.result.uses[1].from_segment);
    CHECK(direct.result.uses[2].from_segment);
    CHECK(same(run, direct));
    CHECK(!same(run, ask(*engine, shared, named("direct"))));
  }
}

TEST_CASE("kvcomm: one text that becomes an anchor has the whole prompt computed, and is the only one learned",
          "[kvcomm]") {
  const auto engine = tiny_engine();
  KvcommOptions options;
  options.gamma = 1.0f;
  const PromptPart head = text(10, 1), middle = text(5, 2), tail = text(6, 3);
  const auto prompt = [&](std::size_t first, std::size_t second, std::uint64_t seed) {
    return std::vector<PromptPart>{head, answer(*engine, random_tokens(first, seed), "first"), middle,
                                   answer(*engine, random_tokens(second, seed + 50), "second"), tail};
  };
  for (const std::uint64_t seed : {3, 4}) ask(*engine, prompt(20, 20, seed), kvcomm(options));
  const std::vector<PromptPart> longer = prompt(15, 25, 5);
  const Run run = ask(*engine, longer, kvcomm(options));
  CHECK(same(run, ask(*engine, longer, named("full"))));
  CHECK(run.result.uses[1].reason == "computed, because another text of the prompt becomes an anchor");
  CHECK(run.result.uses[3].reason.starts_with("0 of 2 "));
  for (const auto& [key, pool] : kvcomm_pools_of(*engine->method_state(kvcomm_method())))
    CHECK(pool.size() == (key.slot == "first" ? 2 : 3));
}

TEST_CASE("kvcomm: an answer that was cut off leaves the text behind it to be computed", "[kvcomm]") {
  const auto engine = tiny_engine();
  KvcommOptions options;
  options.gamma = 1.0f;
  const PromptPart head = text(10, 1), tail = text(6, 3);
  for (const std::uint64_t seed : {3, 4, 5}) {
    GenerationRequest request;
    request.prompt = {text(20, 7)};
    request.reuse = kvcomm();
    request.output_readers = 4;
    request.output_slot = "answer";
    request.max_tokens = seed == 3 ? 24 : 20;  // the last token has no KV
    const Run cut = start(*engine, std::move(request)).get();
    REQUIRE(cut.result.output);
    const PromptPart part{"answer", cut.result.tokens, cut.result.output, 0};
    const Run run = ask(*engine, {head, part, tail}, kvcomm(options));
    if (engine->segment(cut.result.output)->length() < static_cast<std::int32_t>(cut.result.tokens.size()) && seed == 5)
      CHECK(run.result.kv_computed == (10 + 1 + 6) * 3);
  }
  // A whole answer in the same place: its anchors have no KV of the text behind it.
  const Run whole = ask(*engine, {head, answer(*engine, random_tokens(12, 9), "answer"), tail}, kvcomm(options));
  CHECK(whole.result.uses[1].method->name == "kvcomm");
  CHECK(whole.result.kv_computed == (10 + 6) * 3);
}

TEST_CASE("kvcomm: pools stay in the budget", "[kvcomm]") {
  LocalEngineOptions bounds;
  bounds.segment_budget_bytes = 1 << 20;
  bounds.method_budget_bytes = 1 << 17;
  const auto engine = tiny_engine(bounds, {.layers = 2, .width = 32, .heads = 2, .kv_heads = 1});
  KvcommOptions options;
  options.gamma = 0.0f;  // every text becomes an anchor
  for (std::uint64_t i = 0; i < 300; ++i) {
    ask(*engine, {text(4, 1 + i % 7), answer(*engine, random_tokens(30, i), "answer"), text(3, 2)}, kvcomm(options),
        {1});
    const EngineStats stats = engine->stats();
    REQUIRE(stats.method_bytes > 0);
    REQUIRE(stats.method_bytes <= bounds.method_budget_bytes);
    REQUIRE(stats.segments.charged_bytes == stats.method_bytes);
    for (const auto& [key, pool] : kvcomm_pools_of(*engine->method_state(kvcomm_method()))) REQUIRE(pool.size() <= 20);
  }
}

namespace {

using Json = nlohmann::json;

/// bf16 as hexadecimal digits, little-endian.
std::string hex(const std::vector<std::uint16_t>& bits) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(4 * bits.size());
  for (const std::uint16_t one : bits) {
    for (const int shift : {4, 0, 12, 8}) text += kDigits[(one >> shift) & 15];
  }
  return text;
}

Json json_of(const KvcommRows& rows) { return {{"length", rows.length}, {"kv", hex(rows.kv)}}; }

/// A text multiplied by 2^-halvings, which bf16 holds exactly: distances become small enough for soft weights.
KvcommRows halved(KvcommRows rows, int halvings) {
  for (std::uint16_t& one : rows.kv) one = f32_to_bf16(std::ldexp(bf16_to_f32(one), -halvings));
  return rows;
}

Json gate_of(const KvcommOptions& options, const KvcommPool& pool, const KvcommRows& text) {
  const KvcommGate gate = kvcomm_gate(options, pool, text);
  return {{"gamma", options.gamma},  {"top_p", options.top_p},      {"becomes_anchor", gate.becomes_anchor},
          {"usable", gate.usable},   {"distances", gate.distances}, {"weights", gate.weights},
          {"entropy", gate.entropy}, {"activated", gate.activated}};
}

Json mixed_of(const KvcommPool& usable, const KvcommRows& text) {
  const KvcommWeights tokens = kvcomm_token_weights(usable, text), channels = kvcomm_channel_weights(usable, text);
  return {{"token_weights", {{"keys", tokens.keys}, {"values", tokens.values}}},
          {"channel_weights", {{"keys", channels.keys}, {"values", channels.values}}},
          {"offset", json_of(kvcomm_offset(usable, text))},
          {"following", json_of(kvcomm_following(usable, text))}};
}

}  // namespace

TEST_CASE("write a run of kvcomm", "[.]") {
  const char* path = std::getenv("BATON_KVCOMM_RUN");
  REQUIRE(path != nullptr);
  auto backend = make_cpu_backend(1);
  auto nano = open_model(*backend, source_folder() / "samples/models/nano", {});
  const auto engine = std::make_shared<StepEngine>(std::move(backend), std::move(nano), LocalEngineOptions{});
  const auto host = make_cpu_backend(1);
  const auto part = [&](const std::string& words, const std::string& slot = "", std::int64_t readers = 0) {
    return PromptPart{slot, engine->model().tokenizer->encode(words, SpecialTokens::recognise), nullptr, readers};
  };
  const auto rows_of = [&](const SegmentHandle& handle) {
    const auto segment = engine->segment(handle);
    return KvcommRows{width_of(segment->layout()), segment->length(), kv_on_host(*host, *segment)};
  };
  const std::string open = "<|im_start|>system\nYou are ", close = "<|im_end|>\n<|im_start|>assistant\n";
  const std::vector<std::string> names = {"Ana", "Ines", "Oleksandr Kovalenko", "Bo"};
  KvcommOptions options;
  options.size = 4;
  options.window = 3;
  Json run = {{"size", options.size}, {"window", options.window}, {"gamma", options.gamma}, {"top_p", options.top_p}};
  std::vector<KvcommRows> answers;
  for (int i = 0; i < 14; ++i) {
    const std::string question = names[static_cast<std::size_t>(i) % 4] + " has " + std::to_string(10 + 3 * i) +
                                 (i % 3 == 0 ? " very small green pears" : " apples") + ". How many are left if " +
                                 std::to_string(3 + i) + " are eaten?";
    GenerationRequest writer;
    writer.prompt = {part(open + "an analyst.<|im_end|>\n<|im_start|>user\n"), part(question), part(close)};
    writer.reuse = kvcomm();
    writer.output_readers = 1;
    writer.output_slot = "analyst";
    writer.max_tokens = 4 + 3 * (i % 5);
    const Run written = start(*engine, std::move(writer)).get();
    REQUIRE(written.result.output);
    GenerationRequest alone;  // the base KV of a question: a forward pass of its own
    alone.prompt = {part(question, "question", 1)};
    alone.reuse = kvcomm();
    alone.forced = {1};
    const Run asked = start(*engine, std::move(alone)).get();
    REQUIRE(asked.result.segments[0]);
    // The tokens that have KV; the cut token is left out, as in the authors' program.
    const std::int32_t with_kv = engine->segment(written.result.output)->length();
    PromptPart answer{"analyst", written.result.tokens, written.result.output, 0};
    const bool whole = with_kv == static_cast<std::int32_t>(written.result.tokens.size());
    PromptPart asked_part = part(question, "question");
    asked_part.segment = asked.result.segments[0];
    const std::vector<PromptPart> prompt = {part(open + "an inspector.<|im_end|>\n<|im_start|>user\n"), asked_part,
                                            part("\n\nAnalyst:\n"), answer, part(close)};
    // What full prefill has for each of these parts.
    std::vector<PromptPart> exact = prompt;
    for (std::size_t p = 1; p < exact.size(); ++p)
      exact[p] = {"exact" + std::to_string(p), exact[p].tokens, nullptr, 1};
    const Run truth = ask(*engine, exact, named("full"), {1});
    const Run read = ask(*engine, prompt, kvcomm(options), {1});
    Json slots = Json::array();
    for (const std::size_t p : {std::size_t{1}, std::size_t{3}}) {
      KvcommRows in_prompt = rows_of(truth.result.segments[p]), base = rows_of(prompt[p].segment);
      KvcommRows behind = rows_of(truth.result.segments[p + 1]);
      slots.push_back({{"slot", prompt[p].slot},
                       {"base", json_of(base)},
                       {"truth", json_of(in_prompt)},
                       {"following", json_of(behind)},
                       {"whole", p == 1 || whole},
                       {"placed", read.result.uses[p].from_segment}});
      if (p == 3) answers.push_back(base);
    }
    Json pools = Json::object();
    for (const auto& [key, pool] : kvcomm_pools_of(*engine->method_state(kvcomm_method()))) {
      for (const auto& anchor : pool)
        pools[key.slot].push_back({{"base", json_of(*anchor->base)},
                                   {"offset", json_of(anchor->offset)},
                                   {"following", json_of(anchor->following)},
                                   {"activations", anchor->activations}});
    }
    run["prompts"].push_back({{"slots", slots}, {"pools", pools}});
  }
  // The rules on the recorded KV: as it is, and halved until weights are soft.
  for (const auto& [key, pool] : kvcomm_pools_of(*engine->method_state(kvcomm_method()))) {
    if (run["layers"].is_null()) {
      for (const std::int32_t width : pool.front()->base->shape.of) run["layers"].push_back(width);
    }
    if (key.slot != "question") continue;
    for (const int halvings : {0, 2, 4, 6}) {
      KvcommPool scaled;
      Json written = Json::array();
      for (const auto& anchor : pool) {
        auto& made = scaled.emplace_back(std::make_shared<KvcommAnchor>(*anchor));
        made->base = std::make_shared<const KvcommRows>(halved(*anchor->base, halvings));
        written.push_back({{"base", json_of(*made->base)},
                           {"offset", json_of(made->offset)},
                           {"following", json_of(made->following)}});
      }
      KvcommRows shortest = halved(answers.front(), halvings);
      for (const KvcommRows& one : answers) {
        if (one.length < shortest.length) shortest = halved(one, halvings);
      }
      Json gates = Json::array();
      for (const float gamma : {0.1f, 0.3f, 0.95f, 1.0f}) {
        for (const float top_p : {0.6f, 0.9f}) {
          KvcommOptions changed = options;
          changed.gamma = gamma;
          changed.top_p = top_p;
          gates.push_back(gate_of(changed, scaled, shortest));
        }
      }
      run["rules"].push_back(
          {{"pool", written}, {"text", json_of(shortest)}, {"gates", gates}, {"mixed", mixed_of(scaled, shortest)}});
    }
  }
  std::ofstream(path) << run.dump();
}

}  // namespace kvcomm_test
