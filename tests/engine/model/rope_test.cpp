// SPDX-License-Identifier: Apache-2.0
#include "engine/model/rope.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>

#include "engine/cpu/cpu.h"
#include "tests/support/golden.h"

namespace rope_test {

using namespace baton;

namespace {

ModelConfig config_of(std::int32_t head_dim, double theta) {
  ModelConfig config;
  config.head_dim = head_dim;
  config.rope.theta = theta;
  return config;
}

}  // namespace

TEST_CASE("RoPE by hand: width 4, theta 10000") {
  const Rope rope(config_of(4, 10000.0));
  REQUIRE(rope.inverse_frequencies().size() == 2);
  CHECK(rope.inverse_frequencies()[0] == 1.0);
  CHECK(rope.inverse_frequencies()[1] == Approx(0.01).epsilon(1e-14));
  CHECK(rope.attention_factor() == 1.0);

  std::vector<float> cos(4), sin(4);
  rope.angles(cos, sin, std::vector<std::int32_t>{0, 3});
  CHECK(cos == std::vector<float>{1.0f, 1.0f, static_cast<float>(std::cos(3.0)), static_cast<float>(std::cos(0.03))});
  CHECK(sin == std::vector<float>{0.0f, 0.0f, static_cast<float>(std::sin(3.0)), static_cast<float>(std::sin(0.03))});
}

TEST_CASE("RoPE equals Transformers for every scaling") {
  std::ifstream file(test::golden_folder() / "rope.json");
  const nlohmann::json goldens = nlohmann::json::parse(file);
  REQUIRE(goldens.size() >= 14);
  for (const nlohmann::json& golden : goldens) {
    INFO(golden.at("config").dump());
    const Rope rope(parse_config(golden.at("config").dump(), "config"));
    const std::vector<double> expected = golden.at("inverse_frequencies");
    REQUIRE(rope.inverse_frequencies().size() == expected.size());
    double largest = 0.0;
    for (std::size_t pair = 0; pair < expected.size(); ++pair)
      largest = std::max(largest, std::abs(rope.inverse_frequencies()[pair] / expected[pair] - 1.0));
    CHECK(largest < 1e-12);  // both are in double; the requirement is 1e-7
    CHECK(rope.attention_factor() == Approx(golden.at("attention_factor").get<double>()).epsilon(1e-14));
  }
}

TEST_CASE("angles of far positions are exact to the last bit of a float") {
  const Rope rope(config_of(128, 500000.0));
  std::vector<float> cos(64), sin(64);
  rope.angles(cos, sin, std::vector<std::int32_t>{131071});
  for (std::size_t pair = 0; pair < 64; ++pair) {
    const long double angle = 131071.0L * std::pow(500000.0L, -2.0L * static_cast<long double>(pair) / 128.0L);
    CHECK(std::abs(cos[pair] - std::cos(angle)) < 1e-7L);
    CHECK(std::abs(sin[pair] - std::sin(angle)) < 1e-7L);
  }
}

TEST_CASE("the attention factor multiplies cos and sin once") {
  ModelConfig config = config_of(8, 10000.0);
  config.rope.scaling = RopeScaling::yarn;
  config.rope.factor = 4.0;
  config.rope.original_context = 64;
  const Rope derived(config);
  CHECK(derived.attention_factor() == Approx(0.1 * std::log(4.0) + 1.0));
  config.rope.attention_factor = 1.5;
  const Rope rope(config);
  std::vector<float> cos(4), sin(4);
  rope.angles(cos, sin, std::vector<std::int32_t>{5});
  for (std::size_t pair = 0; pair < 4; ++pair)
    CHECK(cos[pair] * cos[pair] + sin[pair] * sin[pair] == Approx(1.5 * 1.5).epsilon(1e-6));
}

TEST_CASE("angles refuse outputs of another size") {
  const Rope rope(config_of(4, 10000.0));
  std::vector<float> small(3), right(4);
  CHECK_THROWS_AS(rope.angles(small, right, std::vector<std::int32_t>{0, 1}), std::invalid_argument);
  CHECK_THROWS_AS(rope.angles(right, small, std::vector<std::int32_t>{0, 1}), std::invalid_argument);
}

TEST_CASE("no RoPE is a rotation by 0 at every position") {
  const Rope rope(config_of(8, 10000.0), RopeKind::none);
  std::vector<float> cos(4), sin(4);
  rope.angles(cos, sin, std::vector<std::int32_t>{131071});
  CHECK(cos == std::vector<float>(4, 1.0f));
  CHECK(sin == std::vector<float>(4, 0.0f));
}

TEST_CASE("a table of angles has those of every position, however it grew") {
  const auto backend = make_cpu_backend(1);
  ModelConfig config = config_of(8, 10000.0);
  config.layers = 3;
  config.local_rope.theta = 500.0;
  config.rope_kinds = {RopeKind::local, RopeKind::global, RopeKind::local};
  const LayerRopes ropes(config);
  REQUIRE(ropes.distinct().size() == 2);
  CHECK(ropes.of(0) == ropes.of(2));
  CHECK(ropes.of(0) != ropes.of(1));
  CHECK(ropes.distinct()[ropes.of(1)].inverse_frequencies()[1] == Approx(0.1).epsilon(1e-14));
  CHECK(ropes.distinct()[ropes.of(0)].inverse_frequencies()[1] == Approx(std::pow(500.0, -0.25)).epsilon(1e-14));
  RopeTable table(*backend, ropes);
  CHECK(table.range(0, 0, 0).cos.rows == 0);
  for (const auto& [begin, layer] :
       std::vector<std::pair<std::int32_t, std::int32_t>>{{0, 0}, {5, 1}, {1020, 0}, {1020, 1}, {3000, 2}, {17, 1}}) {
    const Rope& rope = ropes.distinct()[ropes.of(layer)];
    std::vector<std::int32_t> positions(20);
    std::iota(positions.begin(), positions.end(), begin);
    std::vector<float> cos(20 * 4), sin(20 * 4);
    rope.angles(cos, sin, positions);
    const RopeAngles angles = table.range(ropes.of(layer), begin, 20);
    for (std::int64_t row = 0; row < 20; ++row) {
      for (std::int64_t c = 0; c < 4; ++c) {
        CHECK(angles.cos.f32(row)[c] == cos[static_cast<std::size_t>(row * 4 + c)]);
        CHECK(angles.sin.f32(row)[c] == sin[static_cast<std::size_t>(row * 4 + c)]);
      }
    }
  }
}

}  // namespace rope_test
