// SPDX-License-Identifier: Apache-2.0
#include "engine/reuse/auto/auto.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "engine/engine.h"

namespace relay_history_test {

using namespace baton;

namespace {

const RelayLevels kLevels = {{2, 3, 9}, {{0.9, 0.04, 0.1}, {0.8, 0.01, 0.03}, {0.6, 0.0025, 0.01}}, 2.0};

RelayHistory with(PlaceId place, const std::vector<RelayObservation>& observations) {
  RelayHistory history;
  for (const RelayObservation& one : observations) history.add(place, one);
  return history;
}

}  // namespace

TEST_CASE("history: a place is the reader and the fixed text before the first placeholder", "[history]") {
  const std::vector<PromptPart> prompt = {{"", {1, 2, 3}}, {"question", {4, 5}}, {"", {6}}};
  std::vector<PromptPart> other = prompt;
  other[1].tokens = {7};
  other[2].tokens = {8};
  CHECK(place_of("solver", prompt) == place_of("solver", other));
  CHECK(place_of("solver", prompt) != place_of("solver#2", prompt));
  other[0].tokens = {1, 2};
  CHECK(place_of("solver", prompt) != place_of("solver", other));
  const std::vector<EarlyPart> early = {{{1, 2, 3}}, {{}, 7, true, "question"}};
  CHECK(place_of("solver", prompt) == place_of("solver", early));
  CHECK(place_of("solver", std::vector<PromptPart>{{"question", {4, 5}}}) ==
        place_of("solver", std::vector<EarlyPart>{}));
}

TEST_CASE("history: with fewer than three turns the model's levels stay as they are", "[history]") {
  CHECK(RelayHistory().levels_for(1, kLevels, 0.02) == kLevels);
  CHECK(with(1, {{0.8, 1.0}, {0.8, 1.0}}).levels_for(1, kLevels, 0.02) == kLevels);
  CHECK(with(1, {{0.8, 1.0}, {0.8, 1.0}, {0.8, 1.0}}).levels_for(2, kLevels, 0.02) == kLevels);
  CHECK(with(1, {{0.8, 1.0}, {0.8, 1.0}, {0.8, 1.0}}).levels_for(1, {}, 0.02) == RelayLevels());
}

TEST_CASE("history: levels are corrected by the mean of the logarithms, and their margin by Student's", "[history]") {
  // Three equal turns, a tenth of the model's divergence: the deviation is the floor, 0.5.
  const RelayLevels same = with(1, {{0.8, 0.001}, {0.8, 0.001}, {0.8, 0.001}}).levels_for(1, kLevels, 0.02);
  CHECK(same.turns == 3);
  CHECK(same.range == kLevels.range);
  CHECK(same.guard_scale == 2.0);
  CHECK(same.levels[0].divergence == Approx(0.004));
  CHECK(same.levels[1].divergence == Approx(0.001));
  CHECK(same.levels[1].high == Approx(0.001 * std::exp(2.920 * 0.5 * std::sqrt(4.0 / 3.0))));
  CHECK(same.levels[2].high / same.levels[2].divergence == Approx(same.levels[1].high / same.levels[1].divergence));
  // Ratios e, e^3 and e^5: mean 3, deviation 2.
  const RelayLevels wide = with(1, {{0.8, 0.01 * std::exp(1)}, {0.8, 0.01 * std::exp(3)}, {0.8, 0.01 * std::exp(5)}})
                               .levels_for(1, kLevels, 0.02);
  CHECK(wide.levels[1].divergence == Approx(0.01 * std::exp(3)));
  CHECK(wide.levels[1].high == Approx(0.01 * std::exp(3 + 2.920 * 2.0 * std::sqrt(4.0 / 3.0))));
}

TEST_CASE("history: the model's divergence is interpolated in its logarithm, and constant beyond the levels",
          "[history]") {
  const auto ratio = [](double reuse, double divergence) {
    const RelayObservation one{reuse, divergence};
    return with(1, {one, one, one}).levels_for(1, kLevels, 0.02).levels[1].divergence / 0.01;
  };
  CHECK(ratio(0.8, 0.01) == Approx(1.0));
  CHECK(ratio(0.85, 0.02) == Approx(1.0));  // sqrt(0.01 * 0.04)
  CHECK(ratio(0.7, 0.005) == Approx(1.0));
  CHECK(ratio(0.95, 0.04) == Approx(1.0));
  CHECK(ratio(0.1, 0.0025) == Approx(1.0));
  CHECK(ratio(0.9, 0.04) == Approx(1.0));
  CHECK(ratio(0.6, 0.0025) == Approx(1.0));
  const RelayLevels none =
      with(1, {{0.8, 0.0}, {0.8, 0.0}, {0.8, 0.0}}).levels_for(1, {{}, {{0.8, 0.0, 0.0}}, 0.0}, 0.02);
  CHECK(none.levels[0].high == 0.0);
}

TEST_CASE("history: the guard cannot decide where it refuses half of the turns, or passes what is above", "[history]") {
  const auto because = [](int turns, int refused, int missed) {
    std::vector<RelayObservation> some;
    for (int i = 0; i < turns; ++i)
      some.push_back({0.8, i < refused + missed ? 0.05 : 0.005, i < refused ? 0.04 : 0.01});
    return with(1, some).levels_for(1, kLevels, 0.02).unguarded;
  };
  CHECK(because(3, 1, 0).empty());
  CHECK(because(3, 2, 0) == "its guard refused 2 of them");
  CHECK(because(4, 2, 0) == "its guard refused 2 of them");
  CHECK(because(5, 2, 0).empty());
  CHECK(because(3, 0, 1).empty());
  CHECK(because(3, 0, 2) == "its guard missed 2 of them");
  CHECK(because(19, 0, 2) == "its guard missed 2 of them");
  CHECK(because(20, 0, 2).empty());
  CHECK(because(32, 0, 3) == "its guard missed 3 of them");
  // Of turns without a guard nothing is known: those above the tolerance count as missed.
  CHECK(with(1, {{0.8, 0.05}, {0.8, 0.05}, {0.8, 0.05}}).levels_for(1, kLevels, 0.02).unguarded ==
        "its guard missed 3 of them");
  CHECK(with(1, {{0.8, 0.05}, {0.8, 0.05}, {0.8, 0.05}}).levels_for(1, kLevels, 0.06).unguarded.empty());
}

TEST_CASE("history: Student's quantiles are those of the tables", "[history]") {
  CHECK(student_quantile(1) == Approx(6.314));
  CHECK(student_quantile(2) == Approx(2.920));
  CHECK(student_quantile(4) == Approx(2.132));
  CHECK(student_quantile(9) == Approx(1.833));
  CHECK(student_quantile(10) == Approx(1.812));
  CHECK(student_quantile(20) == Approx(1.725));
  CHECK(student_quantile(30) == Approx(1.697));
  for (std::size_t n = 2; n < 32; ++n) CHECK(student_quantile(n) < student_quantile(n - 1));
  CHECK(student_quantile(1000) == student_quantile(31));
}

TEST_CASE("history: the first three turns are measured, later one in sixteen", "[history]") {
  RelayHistory history;
  for (int i = 0; i < 5; ++i) CHECK(history.wants(1));  // some could not be measured
  for (int i = 0; i < 3; ++i) history.add(1, {0.8, 0.01});
  CHECK(history.knows_enough(1));
  std::vector<int> measured;
  for (int i = 1; i <= 40; ++i) {
    if (history.wants(1)) measured.push_back(i);
  }
  CHECK(measured == std::vector<int>{16, 32});
  CHECK(history.wants(2));
}

TEST_CASE("history: a place whose turns cannot be measured is tried eight times, then one turn in sixteen",
          "[history]") {
  RelayHistory history;
  std::vector<int> tried;
  for (int i = 1; i <= 40; ++i) {
    if (history.wants(1)) tried.push_back(i);
  }
  CHECK(tried == std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 16, 32});
}

TEST_CASE("history: places and observations are bounded, and the newest stay", "[history]") {
  RelayHistory history;
  for (int i = 0; i < 40; ++i) history.add(7, {0.8, i * 0.01});
  CHECK(history.places().at(7).observations.size() == RelayHistory::kMaxObservations);
  CHECK(history.places().at(7).observations.front().divergence == Approx(0.08));
  for (PlaceId place = 100; place < 100 + RelayHistory::kMaxPlaces - 1; ++place) history.wants(place);
  CHECK(history.places().size() == RelayHistory::kMaxPlaces);
  history.wants(7);
  history.wants(1);
  CHECK(history.places().size() == RelayHistory::kMaxPlaces);
  CHECK(history.places().count(7) == 1);
  CHECK(history.places().count(100) == 0);
}

TEST_CASE("history: the record names the turns that decided", "[history]") {
  ReuseDecision decision;
  decision.tolerance = 0.02f;
  choose_level(with(1, {{0.8, 1.0}, {0.8, 1.0}, {0.8, 1.0}}).levels_for(1, kLevels, 0.02), decision);
  CHECK(decision.exact);
  CHECK(decision.reason.find("3 measured turns of this place: rectification is expected to reach") == 0);
  CHECK(decision.reason.find("at 60 % and its guard missed 3 of them; the tolerance is 0.02") != std::string::npos);
  ReuseDecision good;
  good.tolerance = 0.02f;
  choose_level(with(1, {{0.8, 1e-4}, {0.8, 1e-4}, {0.8, 1e-4}}).levels_for(1, kLevels, 0.02), good);
  CHECK(good.basis == "3 measured turns of this place: ");
  CHECK(good.reuse == 0.9);
  CHECK(good.predicted == Approx(4e-4));
}

}  // namespace relay_history_test
