// SPDX-License-Identifier: Apache-2.0
// What is decided about a prompt, by its options and what was measured of the model. No model is opened.
#include "engine/reuse/decision.h"

#include <catch2/catch.hpp>

#include "engine/registry.h"

namespace decision_test {

using namespace baton;

namespace {

Calibration measured() {
  Calibration calibration;
  calibration.range = {1, 2, 5};
  calibration.levels = {{2, 3, 9}, {{0.8, 0.004, 0.015}, {0.6, 0.001, 0.002}}, 2.0};
  return calibration;
}

ReuseOptions options_of(std::string_view name) {
  ReuseOptions reuse;
  reuse.method = find_method(name);
  return reuse;
}

}  // namespace

TEST_CASE("decision: auto takes a level within its tolerance, and leaves the options as they were", "[reuse]") {
  const ReuseOptions reuse = options_of("auto");
  const ReuseDecision decision = decide(reuse, measured(), 1, 12);
  CHECK_FALSE(decision.exact);
  CHECK(decision.reuse == 0.8);
  CHECK(decision.range == LayerRange{2, 3, 9});
  CHECK(decision.measured);
  CHECK(takes_segments(reuse, decision));
  CHECK(reason_of(decision).find("80 % of it reused") == 0);
  CHECK_FALSE(reuse.range.given());
}

TEST_CASE("decision: an exact reader gets exact KV, and the record says why", "[reuse]") {
  ReuseOptions reuse = options_of("auto");
  reuse.exactness = Exactness::exact_reader;
  const ReuseDecision decision = decide(reuse, measured(), 1, 12);
  CHECK(decision.exact);
  CHECK(decision.reason == "its reader is declared exact");
  CHECK_FALSE(decision.measured);
  CHECK_FALSE(takes_segments(reuse, decision));
  CHECK_FALSE(takes_segments(reuse));
  CHECK(decision.range == LayerRange{2, 3, 9});  // its answer is recorded for readers
}

TEST_CASE("decision: nothing is known of a model that was not measured", "[reuse]") {
  const ReuseDecision decision = decide(options_of("auto"), {}, 1, 12);
  CHECK(decision.exact);
  CHECK(decision.reason == "nothing is known about rectification on this model");
}

TEST_CASE("decision: rectify takes the model's layers, or says that there are none", "[reuse]") {
  CHECK(decide(options_of("rectify"), measured(), 1, 12).range == LayerRange{1, 2, 5});
  CHECK_THROWS_WITH(decide(options_of("rectify"), {}, 1, 12),
                    "reuse: rectify needs the model's layer range, and the model has not been profiled");
  ReuseOptions wrong = options_of("rectify");
  wrong.range = {3, 2, 5};
  CHECK_THROWS_WITH(decide(wrong, measured(), 1, 12), Catch::Contains("invalid layers"));
}

TEST_CASE("decision: an early prompt's layers are not checked", "[reuse]") {
  ReuseOptions wrong = options_of("rectify");
  wrong.range = {3, 2, 5};
  CHECK(decide_early(wrong, measured(), 1).range == wrong.range);
}

}  // namespace decision_test
