// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/layer_profiler.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

namespace layer_profile_test {

using namespace baton;
using namespace baton::lab;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::int32_t> found(const LayerCurves& curves, EndReading reading) {
  const FoundRange found = find_range(curves, reading);
  CHECK(found.problem.empty());
  CHECK(found.range.valid(static_cast<std::int32_t>(curves.similarity.size())));
  return {found.range.start, found.range.detect, found.range.end};
}

/// The paper's profile: alike up to `start`, falling to the lowest layer, rising by equal steps up to `end`, then flat
/// but for a ripple. The correlation starts low, and grows fastest into layer `steepest`.
LayerCurves u_shape(int layers, int start, int lowest, int end, int steepest) {
  LayerCurves curves;
  const double bottom = 0.82, top = 0.93;
  for (int l = 0; l < layers; ++l) {
    double s = top + (l % 2 == 0 ? 0.0 : 0.0008);
    if (l <= start)
      s = 0.9995 - 0.002 * l;
    else if (l <= lowest)
      s = 0.985 + (bottom - 0.985) * (l - start - 1) / (lowest - start - 1);
    else if (l <= end)
      s = bottom + (top - bottom) * (l - lowest) / (end - lowest);
    curves.similarity.push_back(s);
  }
  for (int l = 0; l + 1 < layers; ++l)
    curves.correlation.push_back(0.1 + 0.85 / (1 + std::exp(-2.5 * (l - steepest + 0.6))));
  return curves;
}

LayerCurves flat(int layers, double s) {
  return {std::vector<double>(static_cast<std::size_t>(layers), s),
          std::vector<double>(static_cast<std::size_t>(layers - 1), 0.5)};
}

}  // namespace

TEST_CASE("rank correlation", "[profile]") {
  const auto rho = [](std::vector<double> a, std::vector<double> b) { return spearman(a, b); };
  CHECK(rho({1, 2, 3, 4}, {10, 20, 30, 400}) == Approx(1.0));
  CHECK(rho({1, 2, 3, 4}, {4, 3, 2, 1}) == Approx(-1.0));
  CHECK(rho({106, 100, 86, 101, 99, 103, 97, 113, 112, 110}, {7, 27, 2, 50, 28, 29, 20, 12, 6, 17}) ==
        Approx(-29.0 / 165));
  // Ranks 1, 2.5, 2.5, 4 and 1.5, 1.5, 3, 4: covariance 4.25 over sqrt(4.5 * 4.5).
  CHECK(rho({1, 2, 2, 3}, {5, 5, 6, 7}) == Approx(3.75 / 4.5));
  CHECK(std::isnan(rho({1, 1, 1}, {1, 2, 3})));
  CHECK(std::isnan(rho({1, kNan, 1}, {1, 2, 3})));
  CHECK(std::isnan(rho({1}, {2})));
  CHECK(std::isnan(rho({}, {})));
  CHECK_THROWS_AS(rho({1, 2}, {1}), std::invalid_argument);
}

TEST_CASE("the published layers are found in profiles of their shapes", "[profile]") {
  struct Published {
    const char* model;
    int layers, lowest;
    std::vector<std::int32_t> range;
  };
  for (const Published& p :
       {Published{"Llama-3.1-8B", 32, 9, {1, 3, 18}}, Published{"Qwen2.5-Coder-7B", 28, 12, {3, 4, 22}},
        Published{"Qwen3-0.6B", 28, 10, {2, 3, 19}}}) {
    INFO(p.model);
    // Where the correlation turns at l_s or before, l_d is l_s + 1.
    const int steepest = p.range[1] > p.range[0] + 1 ? p.range[1] - 1 : p.range[0];
    CHECK(found(u_shape(p.layers, p.range[0], p.lowest, p.range[2], steepest), EndReading::slope) == p.range);
    // Seen by its level, the last layer of the climb is stable already.
    std::vector<std::int32_t> by_level = p.range;
    --by_level[2];
    CHECK(found(u_shape(p.layers, p.range[0], p.lowest, p.range[2], steepest), EndReading::level) == by_level);
  }
}

TEST_CASE("a profile worked out by hand", "[profile]") {
  LayerCurves curves;
  curves.similarity = {1.0, 0.995, 0.9, 0.8, 0.82, 0.84, 0.86, 0.88, 0.881, 0.881, 0.882, 0.882, 0.882};
  // Second differences at 1, 2, 3, ...: +0.1, +0.1, -0.2, ...: the turn is at 3.
  curves.correlation = {0.1, 0.2, 0.4, 0.7, 0.8, 0.85, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};
  // Slopes of the last five: mean 0.0004, deviation 0.0005; into 8 and 9 they are below 0.0014, into 7 it is 0.02.
  CHECK(found(curves, EndReading::slope) == std::vector<std::int32_t>{1, 4, 7});
  // The last five: mean 0.8816, deviation 0.0005; layers 8 and 9 are above 0.8806, and 7 is not.
  CHECK(found(curves, EndReading::level) == std::vector<std::int32_t>{1, 4, 7});

  SECTION("fewer rises than asked for") {
    curves.similarity = {1.0, 0.995, 0.99, 0.97, 0.96, 0.95, 0.94, 0.8, 0.88, 0.881, 0.881, 0.881, 0.881};
    CHECK(found(curves, EndReading::slope)[2] == 12);
  }
  SECTION("one dissimilar layer ends the beginning, whatever follows") {
    curves.similarity = {1.0, 0.98, 0.999, 0.8, 0.82, 0.84, 0.86, 0.88, 0.881, 0.881, 0.882, 0.882, 0.882};
    CHECK(found(curves, EndReading::slope)[0] == 0);
  }
  SECTION("correlations of rounding noise make no turn") {
    curves.correlation = {kNan, kNan, 0.4, 0.6, 0.9, 0.95, 0.96, 0.97, 0.97, 0.97, 0.97, 0.97};
    CHECK(found(curves, EndReading::slope)[1] == 5);
  }
  SECTION("growth that slows down from the first known layer on, and a ripple later") {
    curves.correlation = {kNan, 0.70, 0.81, 0.89, 0.88, 0.87, 0.89, 0.86, 0.86, 0.86, 0.86, 0.86};
    CHECK(found(curves, EndReading::slope)[1] == 3);
  }
  SECTION("growth that slowed down before l_s") {
    curves.similarity[2] = curves.similarity[3] = 0.991;
    curves.similarity[4] = 0.7;
    curves.correlation = {0.1, 0.6, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};
    CHECK(found(curves, EndReading::slope)[0] == 3);
    CHECK(found(curves, EndReading::slope)[1] == 4);
  }
  SECTION("no growth, or growth behind the range") {
    curves.correlation = {0.9, 0.9, 0.9, 0.903, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};  // less than noise
    CHECK(found(curves, EndReading::slope)[1] == 2);
    curves.correlation = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.5, 0.6, 0.6};
    CHECK(found(curves, EndReading::slope)[1] == 6);  // as late as can be
  }
}

TEST_CASE("whatever the profile, the range is valid", "[profile]") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (int layers = 4; layers <= 100; ++layers) {
    for (int trial = 0; trial < 20; ++trial) {
      LayerCurves curves = flat(layers, 1.0);
      for (double& s : curves.similarity) s = trial % 2 == 0 ? uniform(random) : 1 - 0.02 * std::abs(uniform(random));
      for (double& rho : curves.correlation) rho = trial % 5 == 0 ? kNan : uniform(random);
      for (const EndReading reading : {EndReading::slope, EndReading::level}) found(curves, reading);
    }
    LayerCurves falling = flat(layers, 0), rising = flat(layers, 0);
    for (int l = 0; l < layers; ++l) {
      falling.similarity[static_cast<std::size_t>(l)] = 1 - 0.001 * l;
      rising.similarity[static_cast<std::size_t>(l)] = 0.5 + 0.001 * l;
    }
    for (const EndReading reading : {EndReading::slope, EndReading::level}) {
      for (const double s : {1.0, 0.999, 0.5, 0.0, -1.0}) found(flat(layers, s), reading);
      CHECK(found(falling, reading)[2] == layers - 1);  // lowest at the end: there is nothing behind it
      CHECK(found(rising, reading)[0] == 0);
    }
    // Nothing deviates by more than rounding: as little as possible is recomputed.
    LayerCurves alike = flat(layers, 1 - 1e-9);
    alike.rounding = 1e-5;
    CHECK(found(alike, EndReading::slope) == std::vector<std::int32_t>{layers - 3, layers - 2, layers - 1});
  }
}

TEST_CASE("values are compared in a layer that has its own", "[profile]") {
  const LayerCurves curves = u_shape(16, 1, 4, 10, 4);
  const LayerRange whole = find_range(curves, EndReading::slope).range;
  REQUIRE(whole.detect > 2);
  const LayerRange own = find_range(curves, EndReading::slope, {.own_kv = 3}).range;
  CHECK((own.detect == 2 && own.start < 2 && own.end == whole.end));
  CHECK_FALSE(find_range(curves, EndReading::slope, {.own_kv = 1}).problem.empty());
}

TEST_CASE("no range, and why", "[profile]") {
  using Catch::Contains;
  for (const int layers : {1, 2, 3}) {
    const FoundRange few = find_range(flat(layers, 0.9), EndReading::slope);
    CHECK_FALSE(few.range.valid(layers));
    CHECK_THAT(few.problem, Contains("at least 4"));
  }
  CHECK_FALSE(find_range({}, EndReading::level).problem.empty());
  LayerCurves broken = flat(8, 0.9);
  broken.similarity[5] = kNan;
  CHECK_THAT(find_range(broken, EndReading::slope).problem, Contains("layer 5"));
  broken = flat(8, 0.9);
  broken.correlation.pop_back();
  CHECK_THROWS_AS(find_range(broken, EndReading::slope), std::invalid_argument);
}

TEST_CASE("samples are averaged over tokens, correlations over samples", "[profile]") {
  const LayerSample a = sample_of({{0, 0, 0}, {0.1, 0.2, 0.3}, {0.2, 0.4, 0.9}, {0.4, 0.3, 0.2}});
  CHECK(a.tokens == 3);
  CHECK(a.deviation[1] == Approx(0.2));
  CHECK(std::isnan(a.correlation[0]));
  CHECK(a.correlation[1] == Approx(1.0));
  CHECK(a.correlation[2] == Approx(-1.0));
  const LayerSample b = sample_of({{0}, {0.6}, {0.5}, {0.4}});
  const std::vector<LayerSample> both = {a, b};
  const LayerCurves curves = curves_of(both, 1e-5);
  CHECK(curves.similarity[0] == 1.0);
  CHECK(curves.similarity[1] == Approx(1 - 1.2 / 4));
  CHECK(std::isnan(curves.correlation[0]));
  CHECK(curves.correlation[1] == Approx(1.0));  // one token has no ranks
  CHECK(std::isnan(curves_of(both, 0.28).correlation[2]) ==
        (1 - curves.similarity[3] <= 0.28 || 1 - curves.similarity[2] <= 0.28));
  CHECK_THROWS_AS(curves_of({}, 0), std::invalid_argument);
}

TEST_CASE("agreement of resamples", "[profile]") {
  const auto sample = [](const LayerCurves& curves) {
    LayerSample made{100, {}, curves.correlation};
    for (const double s : curves.similarity) made.deviation.push_back(1 - s);
    return made;
  };
  const LayerSample one = sample(u_shape(28, 2, 10, 19, 2)), other = sample(u_shape(28, 4, 10, 22, 4));
  const Certainty same = bootstrap(std::vector<LayerSample>(6, one), 1e-5, 1, 200);
  CHECK(same.slope.all == Approx(1.0));
  CHECK(same.similarity_error[10] == Approx(0.0).margin(1e-7));
  const std::vector<LayerSample> mixed = {one, one, one, other, other, other};
  const Certainty torn = bootstrap(mixed, 1e-5, 1, 200);
  CHECK(torn.slope.all < 1.0);
  CHECK(torn.slope.all <= std::min({torn.slope.start, torn.slope.detect, torn.slope.end}));
  CHECK(torn.similarity_error[4] > 1e-3);
  CHECK(bootstrap(mixed, 1e-5, 1, 200).slope.all == torn.slope.all);
}

TEST_CASE("layer range: the paper's detection is behind the first turn of the second difference", "[profile]") {
  LayerCurves curves;
  curves.similarity = {1.0, 0.999, 0.995, 0.9, 0.8, 0.85, 0.9, 0.95, 0.951, 0.952, 0.951, 0.952};
  curves.correlation = {0.1, 0.3, 0.4, 0.45, 0.6, 0.7, 0.72, 0.74, 0.76, 0.78, 0.80};
  const LayerRange paper = find_range(curves, EndReading::slope, {.turn = true}).range;
  CHECK(paper.start == 2);
  CHECK(paper.end == 7);
  CHECK(paper.detect == 5);  // the second difference is +0.10 at 3 and -0.05 at 4
  for (std::size_t l = 0; l < 11; ++l) curves.correlation[l] = 0.0625 * static_cast<double>(l);  // no turn
  CHECK(find_range(curves, EndReading::slope, {.turn = true}).range.detect == 3);
  for (double& rho : curves.correlation) rho = std::nan("");
  CHECK(find_range(curves, EndReading::slope, {.turn = true}).range.detect == 3);
}

}  // namespace layer_profile_test
