// SPDX-License-Identifier: Apache-2.0
#include "sdk/lab/hand_over_measurement.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "engine/cpu/cpu.h"
#include "engine/loop/step_engine.h"
#include "tests/support/tiny_model.h"

namespace level_profiler_test {

using namespace baton;
using namespace baton::test;
using namespace baton::lab;
using std::chrono::hours;

namespace {

std::shared_ptr<StepEngine> tiny_engine() {
  auto backend = make_cpu_backend(2);
  auto weights = make_tiny_model(*backend, {.layers = 6});
  return std::make_shared<StepEngine>(std::move(backend), std::move(weights), LocalEngineOptions());
}

std::vector<CalibrationHandOver> hand_overs(std::size_t count, std::size_t answer) {
  std::vector<CalibrationHandOver> made;
  for (std::size_t i = 0; i < count; ++i) {
    made.push_back({random_tokens(20 + i, i), random_tokens(answer, 100 + i), random_tokens(40 + 9 * i, 200 + i),
                    random_tokens(5, 300 + i)});
  }
  return made;
}

}  // namespace

TEST_CASE("a slow model is measured by its first hand-overs alone", "[profile]") {
  const auto engine = tiny_engine();
  const auto all = hand_overs(7, 24);
  const auto measured = [&](std::span<const CalibrationHandOver> of, std::size_t first,
                            std::chrono::milliseconds time) {
    return measure_levels(*engine, of, {}, {.reply_tokens = 4, .reuse = {0.8, 0.5}, .first = first, .time = time});
  };
  const auto whole = measured(all, all.size(), hours(1));
  REQUIRE(whole);
  CHECK(measured(all, 4, hours(1)) == whole);  // in two parts: the same values
  const auto four = measured(all, 4, std::chrono::milliseconds(0));
  REQUIRE(four);
  CHECK(four != whole);
  CHECK(four == measured(std::span(all).first(4), 4, hours(1)));
  CHECK(measured(all, 2, std::chrono::milliseconds(0)) == whole);  // two say too little, whatever the time
}

TEST_CASE("the progress of measuring levels ascends to its end, and answers that are too short measure nothing",
          "[profile]") {
  const auto engine = tiny_engine();
  double last = 0;
  ProfilerOptions options;
  options.on_progress = [&](double share) {
    CHECK(share >= last);
    last = share;
  };
  REQUIRE(measure_levels(*engine, hand_overs(5, 24), options, {.reply_tokens = 4, .reuse = {0.5}, .first = 3}));
  CHECK(last == 1.0);
  CHECK_FALSE(measure_levels(*engine, hand_overs(5, 4), {}, {.reply_tokens = 4, .reuse = {0.5}, .first = 3}));
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
}

}  // namespace level_profiler_test
