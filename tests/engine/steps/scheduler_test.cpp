// SPDX-License-Identifier: Apache-2.0
#include "engine/steps/scheduler.h"

#include <catch2/catch.hpp>

using baton::Pending;
using baton::plan_step;
using Rows = std::vector<std::int32_t>;

TEST_CASE("every decoding sequence gets its row, prompts share the rest oldest first", "[scheduler]") {
  const std::vector<Pending> sequences{{1, true}, {100, false}, {1, true}, {50, false}};
  CHECK(plan_step(sequences, 512) == Rows{1, 100, 1, 50});
  CHECK(plan_step(sequences, 64) == Rows{1, 62, 1, 0});
  CHECK(plan_step(sequences, 110) == Rows{1, 100, 1, 8});
}

TEST_CASE("a step full of decodes still moves the oldest prompt", "[scheduler]") {
  const std::vector<Pending> sequences{{1, true}, {1, true}, {9, false}, {9, false}};
  CHECK(plan_step(sequences, 2) == Rows{1, 1, 1, 0});
}

TEST_CASE("nothing to run plans nothing", "[scheduler]") { CHECK(plan_step({}, 8).empty()); }
