// SPDX-License-Identifier: Apache-2.0
#include "engine/model/layers/layer.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>

namespace expert_choice_test {

using namespace baton;

namespace {

std::vector<std::int32_t> rows_of(const ExpertChoice& choice, std::int32_t expert) {
  return {choice.rows(expert).begin(), choice.rows(expert).end()};
}

}  // namespace

TEST_CASE("experts by hand") {
  // Shares 1 : 2 : 4 : 1, and 3 : 3 : 1 : 1.
  const float two = std::log(2.0f), three = std::log(3.0f), four = std::log(4.0f);
  const std::vector<float> logits = {0, two, four, 0, three, three, 0, 0};
  ExpertChoice choice;
  choice.choose(logits, {.experts = 4, .chosen = 2, .ffn_width = 8, .normalized = true, .dense_layers = {}});
  CHECK(rows_of(choice, 0) == std::vector<std::int32_t>{1});
  CHECK(rows_of(choice, 1) == std::vector<std::int32_t>{0, 1});
  CHECK(rows_of(choice, 2) == std::vector<std::int32_t>{0});
  CHECK(choice.rows(3).empty());
  CHECK(choice.weights(1)[0] == Approx(1.0 / 3));
  CHECK(choice.weights(2)[0] == Approx(2.0 / 3));
  CHECK(choice.weights(0)[0] == Approx(0.5));

  choice.choose(logits, {.experts = 4, .chosen = 3, .ffn_width = 8, .normalized = false, .dense_layers = {}});
  CHECK(choice.weights(2)[0] == Approx(4.0 / 8));
  CHECK(rows_of(choice, 0) == std::vector<std::int32_t>{0, 1});  // of equal shares the lower index
  CHECK(rows_of(choice, 2) == std::vector<std::int32_t>{0, 1});
  CHECK(choice.rows(3).empty());
}

TEST_CASE("a row's experts and weights do not depend on the other rows, and extreme logits have a choice too") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<std::vector<float>> rows = {{1, 2, 3, 4, 5},
                                                {1e30f, -1e30f, 0, 7, 1e30f},
                                                {kInfinity, 1, 2, 3, 4},
                                                {std::nanf(""), 1, 2, 0, 3},
                                                {0, 0, 0, 0, 0}};
  const MixtureConfig mixture{.experts = 5, .chosen = 2, .ffn_width = 8, .normalized = true, .dense_layers = {}};
  std::vector<float> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  ExpertChoice together, alone;
  together.choose(all, mixture);
  std::size_t pairs = 0;
  for (std::int32_t expert = 0; expert < 5; ++expert) pairs += together.rows(expert).size();
  CHECK(pairs == 2 * rows.size());
  for (std::size_t row = 0; row < rows.size(); ++row) {
    alone.choose(rows[row], mixture);
    for (std::int32_t expert = 0; expert < 5; ++expert) {
      const auto found = std::find(together.rows(expert).begin(), together.rows(expert).end(), static_cast<int>(row));
      REQUIRE((found != together.rows(expert).end()) == !alone.rows(expert).empty());
      if (alone.rows(expert).empty()) continue;
      const float weight = together.weights(expert)[static_cast<std::size_t>(found - together.rows(expert).begin())];
      CHECK((weight == alone.weights(expert)[0] || (std::isnan(weight) && std::isnan(alone.weights(expert)[0]))));
    }
  }
  alone.choose({}, mixture);
  CHECK(alone.rows(0).empty());
}

}  // namespace expert_choice_test
