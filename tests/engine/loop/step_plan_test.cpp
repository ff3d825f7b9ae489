// SPDX-License-Identifier: Apache-2.0
#include "engine/loop/step_plan.h"

#include <catch2/catch.hpp>

namespace step_plan_test {

using namespace baton;
using Rows = std::vector<std::int32_t>;

namespace {

Clock::time_point at(int ms) { return Clock::time_point{} + std::chrono::milliseconds(ms); }

/// A sequence that decodes since `ms`.
SequenceSnapshot writer(int ms, std::int32_t rows = 1) {
  return {.tokens = rows, .decoding = true, .submitted = at(0), .prefilled = at(ms)};
}

/// A prompt that was submitted at `ms`.
SequenceSnapshot prompt(int ms, std::int32_t rows) {
  return {.tokens = rows, .deadline = static_cast<double>(ms), .submitted = at(ms)};
}

SequenceSnapshot probe(std::int32_t rows) {
  return {.tokens = rows, .deadline = 1e30, .probe = true, .submitted = at(0)};
}

LocalEngineOptions options() {
  LocalEngineOptions options;
  options.max_step_rows = 512;
  options.max_prefill_rows = 4096;
  options.max_draft = 11;
  return options;
}

}  // namespace

TEST_CASE("every decoding sequence gets its row, prompts share the rest in the given order", "[step_plan]") {
  const std::vector<SequenceSnapshot> sequences{{1, true}, {100, false}, {1, true}, {50, false}};
  CHECK(share_rows(sequences, 510) == Rows{1, 100, 1, 50});
  CHECK(share_rows(sequences, 62) == Rows{1, 62, 1, 0});
  CHECK(share_rows(sequences, 108) == Rows{1, 100, 1, 8});
  CHECK(share_rows(sequences, 0) == Rows{1, 0, 1, 0});
}

TEST_CASE("the prompt with the earliest deadline is served first", "[step_plan]") {
  const std::vector<SequenceSnapshot> sequences{{100, false, 30.0}, {1, true}, {20, false, 10.0}, {20, false, 10.0}};
  CHECK(share_rows(sequences, 30) == Rows{0, 1, 20, 10});
  CHECK(share_rows(sequences, 60) == Rows{20, 1, 20, 20});
  // A short prompt that arrives a little later overtakes a long one; one that arrives much later does not.
  CHECK(prompt_deadline(500, 20) < prompt_deadline(0, 1000));
  CHECK(prompt_deadline(1990, 20) > prompt_deadline(0, 1000));
}

TEST_CASE("rows fill tiles, the last ones of a prompt run when all fit", "[step_plan]") {
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

TEST_CASE("the chunks of siblings follow from measured times", "[step_plan]") {
  CHECK(rows_before_siblings({}, 1, 511) == 0);  // the step measures
  CHECK(rows_before_siblings({7.0, 0.0}, 1, 511) == 511);
  CHECK(rows_before_siblings({7.0, 1.3}, 1, 511) == 47);
  CHECK(rows_before_siblings({7.0, 0.001}, 1, 511) == 511);
  CHECK(rows_before_siblings({0.001, 1.3}, 1, 511) == 7);
  CHECK(rows_before_siblings({0.001, 1.3}, 2, 3) == 3);
}

TEST_CASE("nothing to run plans nothing", "[step_plan]") { CHECK(share_rows({}, 8).empty()); }

TEST_CASE("a step without decoding sequences takes prompts alone, and few rows of a probe alone", "[step_plan]") {
  CHECK(plan_step(std::vector{prompt(0, 5000)}, {}, options()).rows == Rows{4096});
  CHECK(plan_step(std::vector{probe(100)}, {}, options()).rows == Rows{64});
  CHECK(plan_step(std::vector{probe(100), prompt(0, 50)}, {}, options()).rows == Rows{100, 50});
  CHECK(plan_step(std::vector{writer(0), writer(0, 5)}, {}, options()).rows == Rows{1, 5});
}

TEST_CASE("a prompt that arrived before an agent decoded is not bound by its steps", "[step_plan]") {
  const StepMeasures measures{.plain_ms = 7.0, .row_ms = 1.3, .spare_rows = 7};
  const std::vector siblings{writer(20), prompt(10, 100)};
  CHECK(!keeps_decode_pace(siblings));
  CHECK(plan_step(siblings, measures, options()).rows == Rows{1, 47});
  const std::vector later{writer(20), prompt(30, 100)};
  CHECK(keeps_decode_pace(later));
  CHECK(plan_step(later, measures, options()).rows == Rows{1, 7});
  CHECK(!keeps_decode_pace(std::vector{writer(20)}));
  CHECK(!keeps_decode_pace(std::vector{prompt(30, 100)}));
}

TEST_CASE("the prompt with the earliest deadline decides about the pace", "[step_plan]") {
  SequenceSnapshot first = prompt(30, 100);
  first.deadline = 5.0;
  CHECK(keeps_decode_pace(std::vector{writer(20), prompt(10, 100), first}));
  first.deadline = 50.0;
  CHECK(!keeps_decode_pace(std::vector{writer(20), prompt(10, 100), first}));
  first.deadline = 5.0;
  first.tokens = 0;  // it waits
  CHECK(!keeps_decode_pace(std::vector{writer(20), prompt(10, 100), first}));
}

TEST_CASE("a probe keeps the pace of everyone who decodes", "[step_plan]") {
  CHECK(keeps_decode_pace(std::vector{writer(20), probe(10)}));
  CHECK(!keeps_decode_pace(std::vector{probe(10)}));
}

TEST_CASE("while all that decode are tentative, their exact prompts come first", "[step_plan]") {
  const StepMeasures measures{.plain_ms = 7.0, .row_ms = 1.3};
  SequenceSnapshot tentative = writer(20);
  tentative.tentative = tentative.has_early = true;
  CHECK(plan_step(std::vector{tentative}, measures, options()).min_ahead_rows == 47);
  CHECK(plan_step(std::vector{tentative, writer(20)}, measures, options()).min_ahead_rows == 0);
  tentative.has_early = false;
  CHECK(plan_step(std::vector{tentative}, measures, options()).min_ahead_rows == 0);
  CHECK(plan_step(std::vector{writer(20)}, measures, options()).min_ahead_rows == 0);
}

TEST_CASE("certain drafts run whole, guesses as far as they may", "[step_plan]") {
  LocalEngineOptions given = options();
  CHECK(draft_rule(DraftKind::guess, 1, given).max_tokens == 11);
  CHECK(!draft_rule(DraftKind::guess, 1, given).whole);
  CHECK(draft_rule(DraftKind::forced, 1, given).max_tokens == kMaxWholeDraft);
  CHECK(draft_rule(DraftKind::forced, 1, given).whole);
  CHECK(draft_rule(DraftKind::check, 1, given).whole);
  given.token_by_token = true;
  given.max_draft = 0;
  CHECK(draft_rule(DraftKind::forced, 1, given).max_tokens == 0);
  CHECK(!draft_rule(DraftKind::forced, 1, given).whole);
  CHECK(draft_rule(DraftKind::check, 1, given).max_tokens == kMaxWholeDraft);
  given = options();
  given.draft_always = true;
  CHECK(draft_rule(DraftKind::guess, 1, given).whole);
}

TEST_CASE("drafts leave every sequence a row of the step", "[step_plan]") {
  CHECK(draft_rule(DraftKind::check, 64, options()).max_tokens == 7);
  CHECK(draft_rule(DraftKind::guess, 512, options()).max_tokens == 0);
  CHECK(draft_rule(DraftKind::guess, 600, options()).max_tokens == 0);
}

TEST_CASE("a probe counts neither as decoding nor as a prompt", "[step_plan]") {
  CHECK(!is_prefilling(std::vector{probe(10), writer(0)}));
  CHECK(is_prefilling(std::vector{probe(10), prompt(0, 1)}));
  CHECK(decoding_sequences(std::vector{probe(10), writer(0, 4), prompt(0, 9)}) == 1);
  CHECK(decoding_rows(std::vector{probe(10), writer(0, 4), prompt(0, 9)}) == 4);
}

}  // namespace step_plan_test
