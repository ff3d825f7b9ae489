// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_plan.h"

#include <catch2/catch.hpp>

namespace step_plan_test {

using namespace baton;
using Rows = std::vector<std::int32_t>;

TEST_CASE("every decoding sequence gets its row, prompts share the rest in the given order", "[scheduler]") {
  const std::vector<SequenceSnapshot> sequences{{1, true}, {100, false}, {1, true}, {50, false}};
  CHECK(share_rows(sequences, 510) == Rows{1, 100, 1, 50});
  CHECK(share_rows(sequences, 62) == Rows{1, 62, 1, 0});
  CHECK(share_rows(sequences, 108) == Rows{1, 100, 1, 8});
  CHECK(share_rows(sequences, 0) == Rows{1, 0, 1, 0});
}

TEST_CASE("the prompt with the earliest deadline is served first", "[scheduler]") {
  const std::vector<SequenceSnapshot> sequences{{100, false, 30.0}, {1, true}, {20, false, 10.0}, {20, false, 10.0}};
  CHECK(share_rows(sequences, 30) == Rows{0, 1, 20, 10});
  CHECK(share_rows(sequences, 60) == Rows{20, 1, 20, 20});
  // A short prompt that arrives a little later overtakes a long one; one that arrives much later does not.
  CHECK(prompt_deadline(500, 20) < prompt_deadline(0, 1000));
  CHECK(prompt_deadline(1990, 20) > prompt_deadline(0, 1000));
}

TEST_CASE("rows fill tiles, the last ones of a prompt run when all fit", "[scheduler]") {
  CHECK(rows_in_tiles(0, 1, 100, 511) == 0);
  CHECK(rows_in_tiles(6, 1, 100, 511) == 0);
  CHECK(rows_in_tiles(7, 1, 100, 511) == 7);
  CHECK(rows_in_tiles(7, 3, 100, 509) == 5);
  CHECK(rows_in_tiles(7, 8, 100, 504) == 0);
  CHECK(rows_in_tiles(8, 7, 100, 505) == 0);
  CHECK(rows_in_tiles(9, 7, 100, 505) == 9);
  CHECK(rows_in_tiles(40, 1, 100, 511) == 39);
  CHECK(rows_in_tiles(38, 1, 100, 511) == 31);
  CHECK(rows_in_tiles(5, 1, 5, 511) == 5);
  CHECK(rows_in_tiles(600, 1, 1000, 511) == 511);
  CHECK(rows_in_tiles(3, 1, 1000, 2) == 2);
  CHECK(rows_in_tiles(1, 1, 1000, 0) == 0);
}

TEST_CASE("the chunks of siblings follow from measured times", "[scheduler]") {
  CHECK(rows_before_siblings({}, 1, 511) == 0);  // the step measures
  CHECK(rows_before_siblings({7.0, 0.0}, 1, 511) == 511);
  CHECK(rows_before_siblings({7.0, 1.3}, 1, 511) == 47);
  CHECK(rows_before_siblings({7.0, 0.001}, 1, 511) == 511);
  CHECK(rows_before_siblings({0.001, 1.3}, 1, 511) == 7);
  CHECK(rows_before_siblings({0.001, 1.3}, 2, 3) == 3);
}

TEST_CASE("nothing to run plans nothing", "[scheduler]") { CHECK(plan_step({}, 8).empty()); }

}  // namespace step_plan_test
