// SPDX-License-Identifier: Apache-2.0
// End to end against Transformers: fp32 logits within the tolerance that the golden states, 64 greedy tokens equal.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/model/forward.h"
#include "engine/model/model.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_model.h"

namespace golden_test {

using namespace baton;
using namespace baton::test;

namespace {

/// The checkpoint as open_model would give it, without a tokenizer: goldens speak in ids.
Model load(Backend& backend, const Golden& golden, DType dtype, DType kv_dtype) {
  const std::string json = read_file(golden.folder / "config.json");
  ModelConfig config = parse_config(json, (golden.folder / "config.json").string());
  const auto files = open_model_files(golden.folder);
  Weights weights = load_weights(backend, config, files->weights(), dtype);
  ModelOptions options;
  options.dtype = dtype;
  options.kv_dtype = kv_dtype;
  options.context = config.context;
  LayerRopes ropes(config);
  ModelText text{.path = golden.folder, .fingerprint = files->fingerprint()};
  return {std::move(text), std::move(config), options, std::move(ropes), std::move(weights), {}};
}

/// Logits of the wanted positions, with the prompt cut into steps of at most `chunk` rows.
std::vector<std::vector<float>> run(Forward& forward, KvCache& cache, const std::vector<TokenId>& ids,
                                    const std::vector<std::int32_t>& wanted, std::int32_t chunk) {
  std::vector<std::vector<float>> logits;
  const auto end = static_cast<std::int32_t>(ids.size());
  for (std::int32_t begin = cache.length(); begin < end; begin += chunk) {
    StepRows rows;
    const std::int32_t index = rows.add_cache(&cache);
    const std::int32_t stop = std::min(end, begin + chunk);
    for (std::int32_t at = begin; at < stop; ++at) {
      rows.add_row(index, at, ids[static_cast<std::size_t>(at)]);
      if (std::find(wanted.begin(), wanted.end(), at) != wanted.end()) rows.logits_rows.push_back(at - begin);
    }
    const auto values = forward.run(rows);
    const std::size_t vocabulary = rows.logits_rows.empty() ? 0 : values.size() / rows.logits_rows.size();
    for (std::size_t i = 0; i < rows.logits_rows.size(); ++i) {
      logits.emplace_back(values.begin() + static_cast<std::ptrdiff_t>(i * vocabulary),
                          values.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocabulary));
    }
    cache.commit(stop);
  }
  return logits;
}

TokenId best(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// Greedy continuation of a prompt.
std::vector<TokenId> greedy(Backend& backend, const Model& model, std::vector<TokenId> ids, std::size_t count) {
  KvCache cache(backend, model.kv_layout(), static_cast<std::int32_t>(ids.size() + count));
  Forward forward(backend, model);
  std::vector<TokenId> out;
  while (out.size() < count) {
    out.push_back(best(run(forward, cache, ids, {static_cast<std::int32_t>(ids.size()) - 1}, 512).back()));
    ids.push_back(out.back());
  }
  return out;
}

}  // namespace

TEST_CASE("every family: fp32 logits and 64 greedy tokens as Transformers computes them", "[golden]") {
  REQUIRE(golden_names().size() >= 8);
  std::vector<std::string> names = golden_names(), quantized = quantized_names();
  REQUIRE(quantized.size() >= 7);
  names.insert(names.end(), quantized.begin(), quantized.end());
  for (const std::string& name : names) {
    const Golden golden = load_golden(name);
    for (const bool reference : {false, true}) {
      const auto backend = reference ? make_reference_backend() : make_cpu_backend(2);
      const Model model = load(*backend, golden, DType::f32, DType::f32);
      REQUIRE(model.config.vocabulary == golden.vocabulary);
      for (const GoldenPrompt& prompt : golden.prompts) {
        INFO(name << (reference ? ", oracle" : ", cpu") << ", prompt of " << prompt.ids.size() << " tokens");
        Forward forward(*backend, model);
        KvCache cache(*backend, model.kv_layout(), static_cast<std::int32_t>(prompt.ids.size()));
        const auto logits = run(forward, cache, prompt.ids, prompt.positions, 40);
        REQUIRE(logits.size() == prompt.logits.size());
        double worst = 0.0;
        std::size_t at = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
          for (std::size_t v = 0; v < logits[i].size(); ++v) {
            const double error = std::abs(static_cast<double>(logits[i][v]) - prompt.logits[i][v]);
            if (!(error <= worst)) {
              worst = error;
              at = v;
            }
          }
        }
        INFO("largest error " << worst << " at logit " << at << ", tolerance " << golden.tolerance);
        CHECK(worst <= golden.tolerance);
        if (!reference) CHECK(greedy(*backend, model, prompt.ids, prompt.greedy.size()) == prompt.greedy);
      }
    }
  }
}

TEST_CASE("weights kept in bf16 lose nothing where the checkpoint is bf16", "[golden]") {
  int compared = 0;
  for (const std::string& name : golden_names()) {
    const Golden golden = load_golden(name);
    if (!golden.exact_in_bf16) continue;
    const auto backend = make_cpu_backend(2);
    const Model wide = load(*backend, golden, DType::f32, DType::f32);
    const Model narrow = load(*backend, golden, DType::bf16, DType::f32);
    const GoldenPrompt& prompt = golden.prompts.back();
    INFO(name);
    CHECK(greedy(*backend, wide, prompt.ids, 16) == greedy(*backend, narrow, prompt.ids, 16));
    const auto logits_of = [&](const Model& model) {
      Forward forward(*backend, model);
      KvCache cache(*backend, model.kv_layout(), static_cast<std::int32_t>(prompt.ids.size()));
      return run(forward, cache, prompt.ids, prompt.positions, 512);
    };
    CHECK(logits_of(wide) == logits_of(narrow));
    ++compared;
  }
  CHECK(compared >= 3);
}

}  // namespace golden_test
