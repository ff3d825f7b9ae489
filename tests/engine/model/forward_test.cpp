// SPDX-License-Identifier: Apache-2.0
// Batch invariance: any split of a prompt into steps, any scattering of rows over sequences and any number of threads
// gives bit for bit the logits of one dense pass. Exact relay rests on this.
#include "engine/model/forward.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/cpu/cpu.h"
#include "tests/support/tiny_model.h"

namespace forward_test {

using namespace baton;
using namespace baton::test;

namespace {

KvCache cache_for(Backend& backend, const Model& model, std::size_t tokens) {
  return {backend, model.kv_layout(), static_cast<std::int32_t>(tokens)};
}

/// Logits [tokens, V] of one pass over the whole prompt.
std::vector<float> dense(Backend& backend, const Model& model, const std::vector<TokenId>& tokens) {
  KvCache cache = cache_for(backend, model, tokens.size());
  StepRows rows;
  const std::int32_t index = rows.add_cache(&cache);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    rows.add_row(index, static_cast<std::int32_t>(i), tokens[i]);
    rows.logits_rows.push_back(static_cast<std::int32_t>(i));
  }
  Forward forward(backend, model);
  const auto logits = forward.run(rows);
  return {logits.begin(), logits.end()};
}

struct Prompt {
  std::vector<TokenId> tokens;
  std::vector<float> expected;  // [tokens, V]
  std::size_t done = 0;
  KvCache cache;
};

/// Runs all prompts in random steps: each step takes a random number of rows of random prompts, in random order.
/// Returns how many rows differ from the dense pass in any bit.
int rows_that_differ(Backend& backend, const Model& model, std::vector<Prompt>& prompts, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Forward forward(backend, model);
  const auto vocabulary = static_cast<std::size_t>(model.config.vocabulary);
  int different = 0;
  while (std::any_of(prompts.begin(), prompts.end(), [](const Prompt& p) { return p.done < p.tokens.size(); })) {
    struct Row {
      std::size_t prompt;
      std::size_t at;
    };
    std::vector<Row> chosen;
    for (std::size_t p = 0; p < prompts.size(); ++p) {
      const std::size_t left = prompts[p].tokens.size() - prompts[p].done;
      const std::size_t take = random() % 3 == 0 ? 1 : 1 + random() % 90;
      if (random() % 4 == 0) continue;
      for (std::size_t i = 0; i < std::min(take, left); ++i) chosen.push_back({p, prompts[p].done + i});
    }
    if (chosen.empty()) continue;
    std::shuffle(chosen.begin(), chosen.end(), random);
    StepRows rows;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      Prompt& prompt = prompts[chosen[i].prompt];
      rows.add_row(rows.add_cache(&prompt.cache), static_cast<std::int32_t>(chosen[i].at), prompt.tokens[chosen[i].at]);
      rows.logits_rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto logits = forward.run(rows);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      const Prompt& prompt = prompts[chosen[i].prompt];
      different += std::memcmp(&logits[i * vocabulary], &prompt.expected[chosen[i].at * vocabulary],
                               vocabulary * sizeof(float)) != 0;
      prompts[chosen[i].prompt].done = std::max(prompt.done, chosen[i].at + 1);
    }
    for (Prompt& prompt : prompts) prompt.cache.commit(static_cast<std::int32_t>(prompt.done));
  }
  return different;
}

}  // namespace

TEST_CASE("random row sets give bit for bit the logits of one dense pass", "[forward][invariance]") {
  struct Shape {
    std::string name;
    TinyOptions options;
  };
  std::vector<Shape> shapes = {
      {"llama, bf16", {}},
      {"bf16 activations", {.activations = DType::bf16}},
      {"fp32 weights and cache", {.dtype = DType::f32, .kv_dtype = DType::f32}},
      {"q/k norm, biases, wide heads", {.heads = 4, .kv_heads = 4, .head_dim = 24, .qk_norm = true, .bias = true}},
      {"sliding window, GQA 8", {.heads = 8, .kv_heads = 1, .head_dim = 8, .window = 21}},
      {"as Gemma 3", {.layers = 4, .head_dim = 32, .window = 33, .qk_norm = true, .gemma = true}},
      {"as Olmo 3", {.layers = 4, .window = 33, .olmo = true}},
      {"multipliers, heads rotated in part, a temperature", {.head_dim = 24, .mixed = true}},
      {"mixture of experts", {.experts = 6}},
      {"mixture with a shared expert", {.experts = 6, .mixed = true}},
      {"sinks, experts with biases", {.window = 9, .bias = true, .experts = 6, .sinks = true}},
      {"as Gemma 4", gemma4_tiny(0)},
      {"as Gemma 4 with experts", gemma4_tiny(6)},
      {"as Gemma 3n", gemma3n_tiny()},
      {"short convolutions", hybrid_tiny(LayerKind::short_convolution)},
      {"gated delta nets", hybrid_tiny(LayerKind::delta_net)},
      {"Mamba2", hybrid_tiny(LayerKind::mamba2)},
      {"attention and Mamba2 in one layer", hybrid_tiny(LayerKind::parallel)},
  };
  for (std::int32_t id = 0; id < kBlockTypes; ++id) {
    const auto type = static_cast<BlockType>(id);
    if (!is_quantized(type)) continue;
    const std::string name(format_of(type).name);
    shapes.push_back({name, quantized_tiny(type)});
    if (type != BlockType::q4_k && type != BlockType::q8_0) continue;
    shapes.push_back({name + ", f32 activations", quantized_tiny(type)});
    shapes.back().options.dtype = DType::f32;
  }
  for (const Shape& shape : shapes) {
    const auto backend = make_cpu_backend(1);
    const auto model = make_tiny_model(*backend, shape.options);
    std::vector<Prompt> originals;
    for (const std::size_t length : {1u, 3u, 64u, 65u, 130u, 200u}) {
      const auto tokens = random_tokens(length, length);
      originals.push_back({tokens, dense(*backend, *model, tokens), 0, cache_for(*backend, *model, length)});
    }
    for (const int threads : {1, 2, 3, 5}) {
      const auto other = make_cpu_backend(threads);
      const auto same_model = make_tiny_model(*other, shape.options);
      for (std::uint64_t seed = 0; seed < 6; ++seed) {
        std::vector<Prompt> prompts;
        for (const Prompt& p : originals)
          prompts.push_back({p.tokens, p.expected, 0, cache_for(*other, *same_model, p.tokens.size())});
        INFO(shape.name << ", " << threads << " threads, seed " << seed);
        CHECK(rows_that_differ(*other, *same_model, prompts, seed) == 0);
      }
    }
  }
}

TEST_CASE("the optimised backend agrees with the scalar oracle", "[forward]") {
  const auto fast = make_cpu_backend(2);
  const auto oracle = make_reference_backend();
  const std::vector<TinyOptions> models = {{.window = 40, .qk_norm = true, .bias = true},
                                           {.window = 40, .olmo = true},
                                           {.experts = 5, .mixed = true},
                                           {.window = 9, .bias = true, .experts = 5, .sinks = true},
                                           gemma4_tiny(0),
                                           gemma4_tiny(5),
                                           gemma3n_tiny(),
                                           quantized_tiny(BlockType::q5_0),
                                           quantized_tiny(BlockType::q6_k)};
  for (const TinyOptions& options : models) {
    const auto tokens = random_tokens(150, 3);
    const auto a = dense(*fast, *make_tiny_model(*fast, options), tokens);
    const auto b = dense(*oracle, *make_tiny_model(*oracle, options), tokens);
    REQUIRE(a.size() == b.size());
    double worst = 0.0, norm = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
      norm += static_cast<double>(b[i]) * b[i];
    }
    const double rms = std::sqrt(norm / static_cast<double>(a.size()));
    INFO("largest difference " << worst << ", rms of the logits " << rms);
    // bf16 rounding of K and V can fall either way where the two differ in the last fp32 bit: 2^-8 relative per entry.
    // So can the rounding of an activation to one of 255 integers, in every product.
    CHECK(worst < (options.blocks ? 0.06 : 0.02) * rms);
  }
}

TEST_CASE("the sliding window is seen in the logits", "[forward]") {
  const auto backend = make_cpu_backend(1);
  const auto tokens = random_tokens(100, 9);
  const auto whole = dense(*backend, *make_tiny_model(*backend, {}), tokens);
  const auto windowed = dense(*backend, *make_tiny_model(*backend, {.window = 16}), tokens);
  const std::size_t vocabulary = 258;
  CHECK(std::memcmp(whole.data(), windowed.data(), 16 * vocabulary * sizeof(float)) == 0);
  CHECK(std::memcmp(&whole[99 * vocabulary], &windowed[99 * vocabulary], vocabulary * sizeof(float)) != 0);
}

}  // namespace forward_test
