// SPDX-License-Identifier: Apache-2.0
#include "engine/model/model.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/model/forward.h"
#include "engine/reuse/options.h"

namespace shapes_test {

using namespace baton;

namespace {

std::vector<float> last_logits(const Shape& shape, std::uint64_t seed, int threads) {
  const auto backend = make_cpu_backend(threads);
  const auto model = make_random_model(*backend, shape, seed, {});
  Forward forward(*backend, *model);
  KvCache cache(*backend, model->kv_layout(), 64);
  StepRows rows;
  const std::int32_t index = rows.add_cache(&cache);
  for (std::int32_t i = 0; i < 40; ++i) rows.add_row(index, i, (i * 37 + 11) % shape.config.vocabulary);
  rows.logits_rows.push_back(39);
  const auto logits = forward.run(rows);
  return {logits.begin(), logits.end()};
}

}  // namespace

TEST_CASE("shapes have the parameters of the models they are named after") {
  const std::pair<const char*, std::int64_t> known[] = {
      {"llama-3.1-8b", 8'030'261'248}, {"qwen3-0.6b", 596'049'920},   {"qwen2.5-7b", 7'615'616'512},
      {"mistral-7b", 7'248'023'552},   {"smollm2-135m", 134'515'008}, {"nano", 4'160'000},
  };
  for (const auto& [name, parameters] : known) {
    INFO(name);
    const Shape shape = find_shape(name);
    const std::int64_t counted = parameter_count(shape.config);
    if (shape.name == "nano") {
      CHECK(std::abs(static_cast<double>(counted) / static_cast<double>(parameters) - 1.0) < 0.05);
    } else {
      CHECK(counted == parameters);
    }
    const LayerRange range{shape.rectify_start, shape.rectify_detect, shape.rectify_end};
    CHECK((range.end == 0 || range.valid(shape.config.layers)));
  }
  CHECK(find_shape("qwen3-0.6b").config.qk_norm);
  CHECK(find_shape("qwen2.5-7b").config.attention_bias);
  CHECK(find_shape("llama-3.1-8b").config.rope.scaling == RopeScaling::llama3);
}

TEST_CASE("a shape can have fewer layers, an unknown one is named") {
  const Shape shape = find_shape("mistral-7b", 3);
  CHECK(shape.config.layers == 3);
  CHECK(shape.config.window == std::vector<std::int32_t>{0, 0, 0});
  CHECK_THROWS_WITH(find_shape("gpt-5"), Catch::Matchers::Contains("'gpt-5'") && Catch::Matchers::Contains("nano"));
}

TEST_CASE("random weights follow from the seed alone, and keep activations in bounds") {
  const Shape shape = find_shape("nano", 4);
  const std::vector<float> logits = last_logits(shape, 7, 1);
  CHECK(logits == last_logits(shape, 7, 3));
  CHECK(logits != last_logits(shape, 8, 1));
  double sum = 0.0;
  for (const float value : logits) sum += static_cast<double>(value) * value;
  const double deviation = std::sqrt(sum / static_cast<double>(logits.size()));
  CHECK(deviation > 0.3);
  CHECK(deviation < 3.0);
}

}  // namespace shapes_test
