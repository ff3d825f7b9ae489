// SPDX-License-Identifier: Apache-2.0
// The decisions of a run, on plans and snapshots made by hand: no model, no engine, no thread.
#include "workflows/run/run_loop.h"

#include <catch2/catch.hpp>
#include <memory>
#include <utility>
#include <vector>

namespace baton {
namespace {

using Progress = TurnProgress::Phase;

/// A plan of turns that only have what decisions read, and a run of it in which nothing has begun.
struct Decisions {
  explicit Decisions(std::size_t turns) {
    plan.turns.resize(turns);
    run.turns.resize(turns);
    set();
  }
  void set() { plan.spec = std::make_shared<const WorkflowSpec>(spec); }
  void over(std::size_t turn) { run.turns[turn] = {Progress::over, AttemptPhase::idle}; }
  void runs(std::size_t turn, AttemptPhase phase) { run.turns[turn] = {Progress::running, phase}; }
  NextStep step(std::size_t turn, std::optional<bool> condition = {}) const {
    return next_step(plan, run, turn, condition);
  }

  WorkflowSpec spec;
  Plan plan;
  RunSnapshot run;
};

/// Rounds of two turns each, and a deciding turn at the end, with `until`.
Decisions rounds_with_until(int rounds) {
  Decisions made(static_cast<std::size_t>(rounds) * 2 + 1);
  for (int i = 0; i < rounds * 2; ++i) made.plan.turns[static_cast<std::size_t>(i)].round = i / 2 + 1;
  made.plan.turns.back().round = rounds;
  made.plan.turns.back().decides = true;
  made.spec.topology.until = ConditionSpec{};
  made.set();
  return made;
}

ToolSpec tool_named(const std::string& name) {
  ToolSpec tool;
  tool.tool = name;
  return tool;
}

}  // namespace

TEST_CASE("a turn starts when all the turns that it needs are over", "[run_loop]") {
  Decisions team(3);
  team.plan.turns[2].needs = {0, 1};
  CHECK(team.step(0) == NextStep::start);
  CHECK(team.step(1) == NextStep::start);
  CHECK(team.step(2) == NextStep::wait);
  team.over(0);
  team.runs(1, AttemptPhase::generating);
  CHECK(team.step(0) == NextStep::wait);
  CHECK(team.step(1) == NextStep::wait);
  CHECK(team.step(2) == NextStep::wait);
  team.over(1);
  CHECK(team.step(2) == NextStep::start);
  team.run.ending = true;
  CHECK(team.step(2) == NextStep::wait);
}

TEST_CASE("a turn with a condition starts after it was evaluated, and only if it holds", "[run_loop]") {
  Decisions team(2);
  team.plan.turns[1].needs = {0};
  team.plan.turns[1].when = ConditionSpec{};
  CHECK(team.step(1) == NextStep::wait);
  CHECK(team.step(1, true) == NextStep::wait);
  team.over(0);
  CHECK(team.step(1) == NextStep::judge_condition);
  CHECK(team.step(1, false) == NextStep::skip_by_condition);
  CHECK(team.step(1, true) == NextStep::start);
}

TEST_CASE("with until, a round waits for the whole round before it and for the judgement", "[run_loop]") {
  Decisions debate = rounds_with_until(3);
  CHECK(debate.step(0) == NextStep::start);
  CHECK(debate.step(2) == NextStep::wait);
  debate.over(0);
  CHECK(debate.step(2) == NextStep::wait);  // one of the first round is still to run
  debate.over(1);
  CHECK(debate.step(2) == NextStep::judge_rounds);
  debate.run.rounds_judged = 1;
  CHECK(debate.step(2) == NextStep::start);
  CHECK(debate.step(3) == NextStep::start);
  CHECK(debate.step(4) == NextStep::wait);
  debate.over(2);
  debate.over(3);
  CHECK(debate.step(4) == NextStep::judge_rounds);
}

TEST_CASE("rounds that end early skip the turns behind them, but not the deciding one", "[run_loop]") {
  Decisions debate = rounds_with_until(2);
  debate.over(0);
  debate.over(1);
  debate.run.rounds_judged = 1;
  debate.run.rounds_ended = true;
  CHECK(debate.step(2) == NextStep::skip_after_rounds);
  CHECK(debate.step(4) == NextStep::start);
  debate.plan.turns[2].when = ConditionSpec{};
  CHECK(debate.step(2) == NextStep::skip_after_rounds);  // its condition is not evaluated
  debate.plan.turns[4].when = ConditionSpec{};
  CHECK(debate.step(4) == NextStep::judge_condition);
}

TEST_CASE("a round is over with the rounds before it, whatever the deciding turn does", "[run_loop]") {
  Decisions debate = rounds_with_until(2);
  debate.over(2);
  debate.over(3);
  CHECK_FALSE(round_is_over(debate.plan, debate.run, 2));
  debate.over(0);
  CHECK_FALSE(round_is_over(debate.plan, debate.run, 1));
  debate.over(1);
  CHECK(round_is_over(debate.plan, debate.run, 1));
  CHECK(round_is_over(debate.plan, debate.run, 2));
}

TEST_CASE("max_parallel counts the turns that run, but not those that wait for the host", "[run_loop]") {
  Decisions team(4);
  team.spec.topology.max_parallel = 1;
  team.plan.turns[1].tools = {tool_named(kAskTool)};
  team.set();
  team.runs(0, AttemptPhase::pausing);
  CHECK(team.step(1) == NextStep::start);  // it asks
  CHECK(team.step(2) == NextStep::wait_for_a_place);
  team.run.turns[0] = {};
  team.runs(1, AttemptPhase::preparing);  // the host is being asked
  CHECK(team.step(2) == NextStep::start);
  team.runs(1, AttemptPhase::asked);
  CHECK(team.step(2) == NextStep::start);
  team.runs(1, AttemptPhase::generating);
  CHECK(team.step(2) == NextStep::wait_for_a_place);
  team.over(1);
  CHECK(team.step(2) == NextStep::start);
  team.spec.topology.max_parallel = 2;
  team.set();
  team.runs(2, AttemptPhase::held);
  CHECK(team.step(3) == NextStep::start);
  team.runs(0, AttemptPhase::calling);
  CHECK(team.step(3) == NextStep::wait_for_a_place);
}

TEST_CASE("with reuse, prompts go to the engine in the plan's order, but do not wait for tools", "[run_loop]") {
  Decisions team(3);
  for (const std::size_t turn : {std::size_t{1}, std::size_t{2}}) team.runs(turn, AttemptPhase::held);
  team.runs(0, AttemptPhase::preparing);
  team.plan.reuse.record = true;
  CHECK_FALSE(may_submit(team.plan, team.run, 0));
  CHECK_FALSE(may_submit(team.plan, team.run, 1));
  CHECK_FALSE(may_submit(team.plan, team.run, 2));
  team.plan.turns[0].tools = {tool_named("python")};
  CHECK(may_submit(team.plan, team.run, 1));
  team.plan.turns[0].tools.clear();
  team.runs(0, AttemptPhase::generating);
  CHECK(may_submit(team.plan, team.run, 1));
  CHECK(may_submit(team.plan, team.run, 2));  // one that is held is not waited for
  team.runs(2, AttemptPhase::preparing);
  CHECK(may_submit(team.plan, team.run, 1));  // nor one that comes later
  team.runs(0, AttemptPhase::preparing);
  team.plan.reuse.record = false;
  CHECK(may_submit(team.plan, team.run, 1));
  team.run.ending = true;
  CHECK_FALSE(may_submit(team.plan, team.run, 1));
}

TEST_CASE("a run waits for the host when every running turn does", "[run_loop]") {
  Decisions team(3);
  CHECK_FALSE(waits_for_host(team.run));
  team.over(0);
  team.runs(1, AttemptPhase::asked);
  CHECK(waits_for_host(team.run));
  team.runs(2, AttemptPhase::pausing);
  CHECK_FALSE(waits_for_host(team.run));
  team.runs(2, AttemptPhase::asked);
  CHECK(waits_for_host(team.run));
  team.run.ending = true;
  CHECK_FALSE(waits_for_host(team.run));
}

TEST_CASE("a run is over after its last turn, and one that ends does not wait for those that never ran", "[run_loop]") {
  Decisions team(2);
  team.over(0);
  CHECK_FALSE(is_over(team.run));
  team.run.ending = true;
  CHECK(is_over(team.run));
  team.runs(1, AttemptPhase::calling);
  CHECK_FALSE(is_over(team.run));
  team.over(1);
  CHECK(is_over(team.run));
  team.run.ending = false;
  CHECK(is_over(team.run));
  CHECK(is_over(RunSnapshot{}));
}

TEST_CASE("the pause before another attempt doubles, up to a minute", "[run_loop]") {
  PlannedTurn turn;
  turn.retry.attempts = 40;
  turn.retry.backoff = Milliseconds{100};
  for (const auto& [attempt, pause] : {std::pair{1, 100}, {2, 200}, {3, 400}, {10, 51200}, {11, 60000}, {39, 60000}}) {
    const AfterFailure next = after_failure(turn, attempt, true, false);
    CHECK(next.again);
    CHECK(next.pause == Milliseconds{pause});
    CHECK_FALSE(next.ends_run);
    CHECK_FALSE(next.fallback);
  }
  turn.retry.backoff = Milliseconds{3'000'000'000};
  CHECK(after_failure(turn, 1, true, false).pause == Milliseconds{60000});
  CHECK_FALSE(after_failure(turn, 40, true, false).again);
  CHECK_FALSE(after_failure(turn, 1, false, false).again);
  CHECK_FALSE(after_failure(turn, 1, true, true).again);
}

TEST_CASE("after the last attempt on_error decides, unless the run is ending", "[run_loop]") {
  PlannedTurn turn;
  turn.on_error = OnError::fail;
  CHECK(after_failure(turn, 1, true, false).ends_run);
  CHECK_FALSE(after_failure(turn, 1, true, true).ends_run);
  turn.on_error = OnError::skip;
  CHECK_FALSE(after_failure(turn, 1, true, false).ends_run);
  CHECK_FALSE(after_failure(turn, 1, true, false).fallback);
  turn.on_error = OnError::fallback;
  CHECK(after_failure(turn, 1, true, false).fallback);
  CHECK_FALSE(after_failure(turn, 1, true, false).ends_run);
  CHECK_FALSE(after_failure(turn, 1, true, true).fallback);
}

TEST_CASE("only workers and engines end a phase by themselves", "[run_loop]") {
  for (const AttemptPhase phase : {AttemptPhase::preparing, AttemptPhase::generating, AttemptPhase::calling})
    CHECK(ends_by_itself(phase));
  for (const AttemptPhase phase : {AttemptPhase::idle, AttemptPhase::held, AttemptPhase::pausing, AttemptPhase::asked})
    CHECK_FALSE(ends_by_itself(phase));
}

}  // namespace baton
