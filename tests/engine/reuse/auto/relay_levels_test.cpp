// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/auto/auto.h"
#include "engine/reuse/auto/levels.h"

#include <catch2/catch.hpp>

#include "engine/learning/hand_over_measurement.h"

namespace relay_levels_test {

using namespace baton;

namespace {

const RelayLevels kLevels = {{2, 3, 9}, {{0.9, 0.02, 0.06}, {0.8, 0.004, 0.015}, {0.6, 0.001, 0.002}}, 2.0};

ReuseDecision decision_within(float tolerance) {
  ReuseDecision decision;
  decision.tolerance = tolerance;
  return decision;
}

}  // namespace

TEST_CASE("levels: the cheapest one within the tolerance is taken", "[reuse]") {
  ReuseDecision reuse = decision_within(0.02f);
  choose_level(kLevels, reuse);
  CHECK(reuse.reuse == 0.8);
  CHECK(reuse.range == LayerRange{2, 3, 9});
  CHECK(reuse.predicted == Approx(0.004f));
  CHECK(reuse.max_left == Approx(0.01));
  CHECK(!reuse.exact);
  CHECK(kLevels.within(0.1)->reuse == 0.9);
  CHECK(kLevels.within(0.002)->reuse == 0.6);
  CHECK(kLevels.within(0.0019) == nullptr);
}

TEST_CASE("levels: at 80 % the guard decides, though turns may be above the tolerance", "[reuse]") {
  RelayLevels levels = kLevels;
  levels.levels[1].high = 1.0;
  CHECK(levels.within(0.02)->reuse == 0.8);  // not 60 %, which 95 % of the turns would allow
  for (RelayLevel& level : levels.levels) level.high = 1.0;
  ReuseDecision reuse = decision_within(0.02f);
  choose_level(levels, reuse);
  CHECK(reuse.reuse == 0.8);  // 90 % is expected to stay within it, too
  CHECK(reuse.predicted == Approx(0.004f));
  CHECK(reuse.max_left == Approx(0.01));
  CHECK(levels.within(0.002) == nullptr);  // at 60 % the guard cannot tell
  levels.unguarded = "its guard refused 2 of them";
  levels.turns = 3;
  CHECK(levels.within(0.02) == nullptr);
  choose_level(levels, reuse);
  CHECK(reuse.reason ==
        "3 measured turns of this place: rectification is expected to reach 1 nats at 60 % and "
        "its guard refused 2 of them; the tolerance is 0.02");
  levels.unguarded.clear();
  levels.guard_scale = 0.0;
  CHECK(levels.within(0.02) == nullptr);
}

TEST_CASE("levels: without a level within the tolerance the prompt is exact, and says why", "[reuse]") {
  ReuseDecision reuse = decision_within(0.001f);
  choose_level(kLevels, reuse);
  CHECK(reuse.exact);
  CHECK(reuse.reason == "rectification is expected to reach 0.002 nats on this model; the tolerance is 0.001");
  CHECK(reuse.range == kLevels.range);  // its answer is recorded for readers
  ReuseDecision unknown = decision_within(0.02f);
  choose_level(RelayLevels(), unknown);
  CHECK(unknown.exact);
  CHECK(unknown.reason == "nothing is known about rectification on this model");
  ReuseDecision exact = decision_within(0.0f);
  exact.exact = true;
  exact.reason = "declared";
  choose_level(kLevels, exact);
  CHECK(exact.reason == "declared");
}

TEST_CASE("levels: the high divergence is the quantile of a log-normal distribution", "[reuse]") {
  const RelayLevel same = level_of(0.8, std::vector<double>{0.01, 0.01, 0.01});
  CHECK(same.divergence == Approx(0.01));
  // At least a deviation of 0.5; Student's quantile of two degrees of freedom, for one more value than the three.
  CHECK(same.high == Approx(0.01 * std::exp(2.920 * 0.5 * std::sqrt(4.0 / 3.0))));
  // Logarithms of mean log(0.01) and deviation sqrt(2) log(10), of one degree of freedom.
  const RelayLevel wide = level_of(0.8, std::vector<double>{0.001, 0.1});
  CHECK(wide.divergence == Approx(0.0505));
  CHECK(wide.high == Approx(0.01 * std::pow(10.0, 6.314 * std::sqrt(2.0) * std::sqrt(1.5))));
  CHECK(level_of(0.8, std::vector<double>{0.0, 0.0}).high < 1e-6);
}

TEST_CASE("levels: the guard is proportional to the divergence, fitted in logarithms", "[reuse]") {
  CHECK(fit_guard(std::vector<GuardPoint>{{0.01, 0.004}, {0.1, 0.01}}) == Approx(0.2));
  CHECK(fit_guard(std::vector<GuardPoint>{{0.0, 0.004}, {0.1, 0.0}}) == 0.0);
  ReuseDecision reuse = decision_within(0.02f);
  RelayLevels levels = kLevels;
  levels.guard_scale = 0.0;
  choose_level(levels, reuse);
  CHECK(reuse.max_left < 0.0f);
}

TEST_CASE("levels: the range of layers is valid in models of any depth but the smallest", "[reuse]") {
  CHECK_FALSE(LayerRange::by_depth(2).valid(2));
  for (std::int32_t layers = 3; layers < 130; ++layers) CHECK(LayerRange::by_depth(layers).valid(layers));
  CHECK(LayerRange::by_depth(24) == LayerRange{3, 4, 16});
}

}  // namespace relay_levels_test
