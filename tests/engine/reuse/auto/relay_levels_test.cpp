// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/auto/auto.h"
#include "engine/reuse/auto/levels.h"

#include <catch2/catch.hpp>
#include <cmath>

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
  levels.of_place = true;
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

TEST_CASE("levels: without its factor the guard does not decide", "[reuse]") {
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

TEST_CASE("levels: assumed ones allow nothing, until turns are measured", "[reuse]") {
  const RelayLevels assumed = assumed_levels(24);
  CHECK(assumed.range == LayerRange::by_depth(24));
  CHECK(assumed_levels(2) == RelayLevels());
  for (std::size_t i = 1; i < assumed.levels.size(); ++i) {
    CHECK(assumed.levels[i].reuse < assumed.levels[i - 1].reuse);
    CHECK(assumed.levels[i].divergence < assumed.levels[i - 1].divergence);
  }
  CHECK(assumed.within(1e9) == nullptr);
  RelayHistory history;
  ReuseDecision decision = decision_within(0.02f);
  choose_level(history.levels_for(1, assumed, 0.02), decision);
  CHECK(decision.reason == "exact until 3 turns of this model are measured; 0 are");
  CHECK(decision.range == assumed.range);  // authors keep what readers may need

  // Turns of two places, of which none has enough for itself.
  const double expected = assumed.levels[1].divergence;
  history.add(1, {0.8, 0.1 * expected, 0.2 * expected});
  history.add(2, {0.8, 0.1 * expected, 0.2 * expected});
  decision = decision_within(0.02f);
  choose_level(history.levels_for(3, assumed, 0.02), decision);
  CHECK(decision.exact);
  CHECK(decision.reason == "exact until 3 turns of this model are measured; 2 are");
  history.add(2, {0.8, 0.1 * expected, 0.2 * expected});
  const RelayLevels found = history.levels_for(3, assumed, 0.02);
  CHECK_FALSE(found.assumed);
  CHECK(found.turns == 3);
  for (std::size_t i = 0; i < found.levels.size(); ++i)
    CHECK(found.levels[i].divergence == Approx(0.1 * assumed.levels[i].divergence));
  // The guard expected twice what was measured; three turns bound its factor from above.
  CHECK(found.guard_scale == Approx(0.5 * assumed.guard_scale * std::exp(2.920 * 0.5 / std::sqrt(3.0))));
  decision = decision_within(0.02f);
  choose_level(found, decision);
  CHECK_FALSE(decision.exact);
  CHECK(decision.basis == "3 measured turns of this model: ");
}

TEST_CASE("levels: a place with enough turns decides by them, whatever the model's others say", "[reuse]") {
  const RelayLevels assumed = assumed_levels(24);
  RelayHistory history;
  for (int i = 0; i < 3; ++i) history.add(1, {0.8, 0.001, 0.002});
  for (int i = 0; i < 3; ++i) history.add(2, {0.8, 5.0, 10.0});
  const RelayLevels good = history.levels_for(1, assumed, 0.02), bad = history.levels_for(2, assumed, 0.02);
  CHECK(good.of_place);
  CHECK(good.levels[1].divergence == Approx(0.001));
  CHECK(good.within(0.02) != nullptr);
  CHECK(bad.within(0.02) == nullptr);
  CHECK(bad.unguarded == "its guard refused 3 of them");
  CHECK(history.levels_for(3, assumed, 0.02).levels[1].divergence == Approx(std::sqrt(0.001 * 5.0)));
  // Levels that were measured on the model count in places without turns of their own.
  CHECK(history.levels_for(3, kLevels, 0.02) == kLevels);
}

TEST_CASE("levels: the places that were used last tell about the model", "[reuse]") {
  RelayHistory history;
  history.add(1000, {0.8, 5.0, 5.0});
  for (PlaceId place = 1; place <= RelayHistory::kOfModel; ++place) history.add(place, {0.8, 0.001, 0.001});
  CHECK(history.last_used().size() == RelayHistory::kOfModel);
  for (const RelayObservation& one : history.last_used()) CHECK(one.divergence == 0.001);
  history.add(1000, {0.8, 5.0, 5.0});
  CHECK(history.last_used().front().divergence == 5.0);
}

}  // namespace relay_levels_test
