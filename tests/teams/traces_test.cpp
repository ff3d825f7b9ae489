// SPDX-License-Identifier: Apache-2.0
// Traces of random teams agree with the records of their runs.
#include <catch2/catch.hpp>
#include <chrono>
#include <stop_token>

#include "engine/base/random.h"
#include "tests/support/tiny_engine.h"
#include "tests/support/trace_checks.h"
#include "tests/teams/random_team.h"
#include "tests/teams/team_run.h"
#include "tests/teams/team_tools.h"
#include "workflows/compile.h"

namespace traces_test {

using namespace baton;
using namespace baton::test;

namespace {

const SpanValue* attribute(const TraceSpan& span, const char* name) {
  for (const auto& [key, value] : span.attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::int64_t number(const TraceSpan& span, const char* name) {
  const SpanValue* value = attribute(span, name);
  return value == nullptr ? -1 : std::get<std::int64_t>(*value);
}

struct Seen {
  std::int64_t turns = 0, calls = 0, tools = 0, retries = 0, links = 0, cancelled = 0;
};

/// What the spans of one turn say, against its record. Empty: they agree.
std::string difference(const RunTrace& trace, const TraceSpan& turn, const AgentRecord& record, Seen& seen) {
  std::int64_t calls = 0, tools = 0, input = 0, output = 0, failed = 0;
  for (const TraceSpan& span : trace.spans) {
    if (span.parent != turn.id) continue;
    if (span.name.starts_with("execute_tool ")) ++tools;
    if (!span.name.starts_with("chat ")) continue;
    ++calls;
    input += number(span, "gen_ai.usage.input_tokens");
    output += number(span, "gen_ai.usage.output_tokens");
    failed += span.failed ? 1 : 0;
  }
  ++seen.turns;
  seen.calls += calls;
  seen.tools += tools;
  seen.retries += record.attempts - 1;
  seen.links += static_cast<std::int64_t>(turn.inputs.size());
  if (tools != static_cast<std::int64_t>(record.tools.size()))
    return fmt::format("{} spans of tools, {} in the record", tools, record.tools.size());
  if (turn.failed != (record.state != TurnState::ok)) return "its status is not that of the record";
  if (record.state != TurnState::ok) return {};
  if (record.finish_reason && calls == 0) return "no call of the model";
  if (record.attempts > 1 || calls == 0) return {};
  if (failed != 0) return "a failed call in a turn that succeeded at once";
  if (input != record.prompt_tokens || output != record.output_tokens)
    return fmt::format("{} and {} tokens in calls, {} and {} in the record", input, output, record.prompt_tokens,
                       record.output_tokens);
  return {};
}

}  // namespace

TEST_CASE("random teams: traces are trees that agree with the records, also of runs that are stopped") {
  const ToolRegistry tools = team_tools();
  ReadOptions options;
  options.tools = &tools;
  TinyOptions model{.layers = 3, .width = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .ffn_width = 48};
  model.context = 4096;
  model.eos_tokens = {257, 'q', 'T', ';', 4, 0x80, 0xd0};
  const auto engine = tiny_engine({}, model);
  Seen seen;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const RandomTeam team = random_team(seed, {});
    TeamRun run;
    run.plan = std::make_shared<const Plan>(compile(std::string_view(team.yaml), "team.yaml", options));
    run.inputs = team.inputs;
    run.seed = team.run_seed;
    std::stop_source stop;
    run.stop = stop.get_token();
    std::uint64_t state = seed;
    int left = seed % 4 == 0 ? static_cast<int>(next_random(state) % 60) : -1;
    RunMarks marks;
    const auto begin = std::chrono::steady_clock::now();
    run.on_event = [&](const Event& event) {
      marks.add(event, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
      if (left-- == 0) stop.request_stop();
    };
    const RunRecord record = run_team(engine, run).record;
    const RunTrace trace = spans_of(record, marks.turns(record));
    INFO(seed << "\n" << team.yaml);
    REQUIRE(wrong_in_tree(trace) == "");
    REQUIRE(wrong_in_chrome(trace) == "");
    seen.cancelled += record.state == RunState::cancelled ? 1 : 0;

    std::multimap<std::pair<std::string, std::int64_t>, const TraceSpan*> turns;
    for (const TraceSpan& span : trace.spans) {
      if (span.name.starts_with("invoke_agent "))
        turns.emplace(std::pair(span.agent, number(span, "baton.round")), &span);
    }
    std::size_t ran = 0;
    for (const AgentRecord& agent : record.agents) {
      const std::pair name(agent.agent, std::int64_t{agent.round});
      if (agent.state == TurnState::skipped) continue;
      ++ran;
      INFO("agent " << agent.agent << " in round " << agent.round);
      const auto same = std::count_if(record.agents.begin(), record.agents.end(), [&](const AgentRecord& other) {
        return other.agent == agent.agent && other.round == agent.round;
      });
      if (same == 1) {
        REQUIRE(turns.count(name) == 1);
        REQUIRE(difference(trace, *turns.find(name)->second, agent, seen) == "");
      }
    }
    REQUIRE(turns.size() == ran);
  }
  CHECK(seen.turns > 200);  // else nothing was tried
  CHECK(seen.calls > seen.turns / 2);
  CHECK(seen.tools > 20);
  CHECK(seen.retries > 5);
  CHECK(seen.links > 50);
  CHECK(seen.cancelled > 3);
}

}  // namespace traces_test
