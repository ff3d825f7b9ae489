// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/effect_profiler.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "tests/support/tiny_model.h"

namespace range_search_test {

using namespace baton;
using namespace baton::lab;
using namespace baton::test;

namespace {

/// A model in which reuse is wrong by weight[l] in layer l, and a choice before layer `seen` is a blind one.
struct Known {
  std::vector<double> weight;
  std::int32_t seen = 1;
  std::vector<RangeCandidate> asked;

  std::optional<std::vector<double>> operator()(std::span<const RangeCandidate> candidates) {
    std::vector<double> left;
    for (const RangeCandidate& one : candidates) {
      asked.push_back(one);
      const LayerRange& range = one.range;
      const double found = one.share >= 1 ? 1.0 : std::min(1.0, (range.detect >= seen ? 6 : 2) * one.share);
      double sum = 0;
      for (std::int32_t l = 0; l < static_cast<std::int32_t>(weight.size()); ++l) {
        const bool all = l > range.start && l <= range.detect && one.share > 0;
        const bool chosen = l > range.detect && l <= range.end;
        sum += weight[static_cast<std::size_t>(l)] * (all ? 0.0 : chosen ? 1.0 - found : 1.0);
      }
      left.push_back(sum);
    }
    return left;
  }
};

/// [layers] weight 1 from `first` to `last`, `other` elsewhere.
std::vector<double> between(std::size_t layers, std::size_t first, std::size_t last, double other = 0.0) {
  std::vector<double> weight(layers, other);
  for (std::size_t l = first; l <= last; ++l) weight[l] = 1.0;
  return weight;
}

}  // namespace

TEST_CASE("range search: the layers that matter are found", "[profile]") {
  struct Case {
    Known known;
    LayerRange expected;
  };
  const Case cases[] = {
      {{between(16, 2, 9), 1}, {1, 2, 9}},
      {{between(16, 2, 9), 3}, {1, 3, 9}},  // a later detection that sees is worth its layers
      {{between(16, 1, 8), 4}, {0, 1, 8}},  // one that would cost everything is not
      {{between(8, 1, 4), 1}, {0, 1, 4}},
      {{between(8, 3, 7, 0.01), 1}, {2, 3, 7}},
      {{between(8, 7, 7), 1}, {5, 6, 7}},  // as late as a range can begin
      {{between(8, 1, 1), 1}, {0, 1, 2}},  // as short as one can be
  };
  for (const Case& one : cases) {
    Known known = one.known;
    const std::size_t layers = known.weight.size();
    const auto effect = search_range(static_cast<std::int32_t>(layers), std::ref(known));
    REQUIRE(effect);
    INFO("expected " << one.expected.start << " " << one.expected.detect << " " << one.expected.end);
    CHECK(effect->problem.empty());
    CHECK(effect->range.start == one.expected.start);
    CHECK(effect->range.detect == one.expected.detect);
    CHECK(effect->range.end == one.expected.end);
    for (const RangeCandidate& asked : known.asked) CHECK(asked.range.valid(static_cast<std::int32_t>(layers)));
    CHECK(effect->start[0] == 0.0);
    CHECK(std::isnan(effect->end[static_cast<std::size_t>(effect->range.start + 1)]));
  }
}

TEST_CASE("range search: values are compared in a layer that has its own", "[profile]") {
  Known known{between(16, 2, 9), 3, {}};
  const auto effect = search_range(16, std::ref(known), {.own_kv = 3});
  REQUIRE(effect);
  CHECK(effect->range.start == 1);
  CHECK(effect->range.detect == 2);
  for (const RangeCandidate& asked : known.asked) CHECK((asked.share <= 0 || asked.range.detect < 3));
  Known none{between(16, 2, 9), 1, {}};
  CHECK_THAT(search_range(16, std::ref(none), {.own_kv = 1})->problem, Catch::Contains("fewer than two layers"));
}

TEST_CASE("range search: nothing to gain, the end of the search, and too few layers", "[profile]") {
  Known nothing{std::vector<double>(6, 0.0), 1, {}};
  const auto effect = search_range(6, std::ref(nothing));
  REQUIRE(effect);
  CHECK_FALSE(effect->problem.empty());
  Known some{{0, 1, 1, 1, 1}, 1, {}};
  for (std::size_t calls = 0; calls < 4; ++calls) {
    std::size_t left = calls;
    const auto stopped =
        search_range(5, [&](std::span<const RangeCandidate> c) { return left-- == 0 ? std::nullopt : some(c); });
    CHECK_FALSE(stopped);
  }
  CHECK_THROWS_AS(search_range(3, std::ref(some)), std::invalid_argument);
}

TEST_CASE("the effect of recomputing layers, on an engine", "[profile]") {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, {.layers = 6});
  StepEngine engine(std::move(backend), std::move(weights), LocalEngineOptions());
  std::vector<CalibrationHandOver> hand_overs;
  for (std::size_t i = 0; i < 3; ++i) {
    hand_overs.push_back(
        {random_tokens(20, i), random_tokens(24, 100 + i), random_tokens(40, 200 + i), random_tokens(5, 300 + i)});
  }
  const auto effect = measure_effect(engine, hand_overs, {}, {.reply_tokens = 8});
  REQUIRE(effect);
  REQUIRE(effect->problem.empty());
  CHECK(effect->range.valid(6));
  CHECK(effect->direct > 1e-6);
  if (effect->range.start == 0) CHECK(effect->end[5] == 0.0);  // all tokens in all layers: full prefill, bit for bit
  CHECK(engine.stats().kv_bytes == 0);
  CHECK(engine.stats().segments.segments == 0);
  const auto again = measure_effect(engine, hand_overs, {}, {.reply_tokens = 8});
  CHECK(again->direct == effect->direct);

  for (CalibrationHandOver& one : hand_overs) one.before = one.producer;
  CHECK_FALSE(measure_effect(engine, hand_overs, {})->problem.empty());  // reuse is exact there
  CHECK_FALSE(measure_effect(engine, {}, {})->problem.empty());
  std::stop_source stop;
  stop.request_stop();
  ProfilerOptions stopped;
  stopped.stop = stop.get_token();
  CHECK_FALSE(measure_effect(engine, hand_overs, stopped));
  CHECK(engine.stats().kv_bytes == 0);
}

}  // namespace range_search_test
