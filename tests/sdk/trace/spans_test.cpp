// SPDX-License-Identifier: Apache-2.0
// Spans of run records that are made here without an engine: by hand, at random, and hostile ones.
#include "sdk/trace/spans.h"

#include <catch2/catch.hpp>

#include "engine/base/random.h"
#include "tests/support/trace_checks.h"

namespace spans_test {

namespace {

using namespace baton;
using baton::test::wrong_in_chrome;
using baton::test::wrong_in_tree;
using Json = nlohmann::json;

AgentRecord turn(const std::string& agent, int round = 1) {
  AgentRecord record;
  record.agent = agent;
  record.role = "Role";
  record.model = "main";
  record.round = round;
  record.finish_reason = FinishReason::eos;
  record.prompt_tokens = 100;
  record.output_tokens = 5;
  record.kv = {400, 200, 200, 40, 0.5};
  record.output = "SECRET";
  return record;
}

RunRecord run_of(std::vector<AgentRecord> agents) {
  RunRecord record;
  record.version = "0.1.0";
  record.date = "2026-01-31T12:00:00.250Z";
  record.workflow = "team";
  record.model_path = "/models/nano";
  record.agents = std::move(agents);
  record.wall_ms = 1000;
  record.inputs["question"] = "SECRET";
  record.outputs["answer"] = "SECRET";
  record.error = "SECRET";
  return record;
}

struct Timed {
  double t_ms;
  Event event;
};

RunTrace trace_of(const RunRecord& record, const std::vector<Timed>& events) {
  RunMarks marks;
  for (const auto& [t_ms, event] : events) marks.add(event, t_ms);
  RunTrace trace = spans_of(record, marks.turns(record));
  CHECK(wrong_in_tree(trace) == "");
  CHECK(wrong_in_chrome(trace) == "");
  return trace;
}

const SpanValue* find(const SpanAttributes& attributes, const std::string& name) {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

template <typename Value>
Value of(const TraceSpan& span, const std::string& name) {
  const SpanValue* value = find(span.attributes, name);
  INFO(span.name << ": " << name);
  REQUIRE(value != nullptr);
  return std::get<Value>(*value);
}

std::vector<std::string> names(const RunTrace& trace) {
  std::vector<std::string> all;
  for (const TraceSpan& span : trace.spans) all.push_back(span.name);
  return all;
}

AgentFinished over(const AgentRecord& record) { return {record, 0}; }

}  // namespace

TEST_CASE("trace: a team of two is a tree with the times of its events") {
  AgentRecord solver = turn("solver"), checker = turn("checker");
  solver.ttft_ms = 60;
  solver.decode_ms = 200;
  solver.prefill_ms = 50;
  checker.slots.push_back({.name = "agent_solver_current", .tokens = 5, .method = "direct", .reused_tokens = 5});
  const RunRecord record = run_of({solver, checker});
  Relayed relayed{"solver", "checker", 1, checker.slots[0]};
  const RunTrace trace = trace_of(record, {{0, RunStarted{"team", 2}},
                                           {20, AgentStarted{"solver", "Role", 1, 100}},
                                           {70, Prefill{"solver", 1, solver.kv, 50}},
                                           {70, Token{"solver", 1, 1, "SECRET"}},
                                           {270, Token{"solver", 1, 2, "SECRET"}},
                                           {270, over(solver)},
                                           {300, AgentStarted{"checker", "Role", 1, 100}},
                                           {400, relayed},
                                           {400, Prefill{"checker", 1, checker.kv, 100}},
                                           {420, Token{"checker", 1, 1, "SECRET"}},
                                           {900, over(checker)}});
  REQUIRE(names(trace) == std::vector<std::string>{"invoke_workflow team", "invoke_agent solver", "chat nano",
                                                   "invoke_agent checker", "chat nano"});
  CHECK(trace.start_unix_ns == 1769860800250000000);
  const TraceSpan &run = trace.spans[0], &first = trace.spans[1], &chat = trace.spans[2], &second = trace.spans[3];
  CHECK((run.begin_ms == 0 && run.end_ms == 1000));
  CHECK((first.begin_ms == 10 && first.end_ms == 270));  // it begins 60 ms (its ttft_ms) before its first token
  CHECK((chat.begin_ms == 20 && chat.end_ms == 270));
  CHECK((second.begin_ms == 300 && second.end_ms == 900));
  CHECK(chat.parent == first.id);
  CHECK(second.parent == run.id);
  CHECK(second.inputs == std::vector{first.id});
  CHECK(of<std::string>(run, "gen_ai.operation.name") == "invoke_workflow");
  CHECK(of<std::string>(first, "gen_ai.operation.name") == "invoke_agent");
  CHECK(of<std::string>(chat, "gen_ai.operation.name") == "chat");
  CHECK(of<std::string>(chat, "gen_ai.request.model") == "nano");
  CHECK(of<std::int64_t>(chat, "gen_ai.usage.input_tokens") == 100);
  CHECK(of<std::int64_t>(chat, "gen_ai.usage.cache_read.input_tokens") == 50);
  CHECK(of<std::int64_t>(chat, "gen_ai.usage.output_tokens") == 5);
  CHECK(of<double>(chat, "gen_ai.response.time_to_first_chunk") == Approx(0.05));
  CHECK(of<std::vector<std::string>>(chat, "gen_ai.response.finish_reasons") == std::vector<std::string>{"stop"});
  CHECK(of<double>(first, "baton.queue_ms") == Approx(10));
  REQUIRE(second.moments.size() == 1);
  CHECK(second.moments[0].at_ms == 400);
  CHECK(find(second.moments[0].attributes, "baton.placeholder.method") != nullptr);
  for (const TraceSpan& span : trace.spans) CHECK_FALSE((span.failed || span.calls_out));
}

TEST_CASE("trace: an attempt that failed is a failed call of the model in a turn that did not fail") {
  AgentRecord solver = turn("solver");
  solver.attempts = 2;
  const RunTrace trace = trace_of(run_of({solver}), {{10, AgentStarted{"solver", "", 1, 100}},
                                                     {20, Token{"solver", 1, 1, ""}},
                                                     {30, Token{"solver", 1, 1, ""}},
                                                     {50, AgentStarted{"solver", "", 1, 120}},
                                                     {60, Token{"solver", 1, 1, ""}},
                                                     {90, over(solver)}});
  REQUIRE(names(trace).size() == 4);
  const TraceSpan &agent = trace.spans[1], &one = trace.spans[2], &two = trace.spans[3];
  CHECK_FALSE((agent.failed || two.failed));
  CHECK(one.failed);
  CHECK(of<std::string>(one, "error.type") == "attempt_failed");
  CHECK((one.end_ms == 30 && two.begin_ms == 50 && two.end_ms == 90));
  CHECK(of<std::int64_t>(one, "gen_ai.usage.output_tokens") == 2);
  CHECK(of<std::int64_t>(one, "gen_ai.usage.input_tokens") == 100);
  CHECK(of<std::int64_t>(two, "gen_ai.usage.input_tokens") == 120);
  CHECK(of<std::int64_t>(two, "baton.attempt") == 2);
}

TEST_CASE("trace: spans of tools follow one another between the model calls that asked for them") {
  AgentRecord solver = turn("solver");
  const KvRecord later{600, 400, 200, 0, 0.67};
  const RunTrace trace =
      trace_of(run_of({solver}), {{15, ToolCalled{"solver", 1, "search", true, "SECRET", 5, "", ""}},
                                  {20, AgentStarted{"solver", "", 1, 100}},
                                  {30, Prefill{"solver", 1, solver.kv, 10}},
                                  {40, Token{"solver", 1, 1, ""}},
                                  {100, ToolCalled{"solver", 1, "add", true, "SECRET", 20, "{}", ""}},
                                  {100, ToolCalled{"solver", 1, "add", false, "SECRET", 30, "{}", ""}},
                                  {110, Prefill{"solver", 1, later, 10}},
                                  {120, Token{"solver", 1, 1, ""}},
                                  {150, over(solver)}});
  REQUIRE(names(trace) == std::vector<std::string>{"invoke_workflow team", "invoke_agent solver", "execute_tool search",
                                                   "chat nano", "execute_tool add", "execute_tool add", "chat nano"});
  const auto at = [&](std::size_t i) { return std::pair(trace.spans[i].begin_ms, trace.spans[i].end_ms); };
  CHECK(at(1) == std::pair(10.0, 150.0));
  CHECK(at(2) == std::pair(10.0, 15.0));
  CHECK(at(3) == std::pair(20.0, 50.0));
  CHECK(at(4) == std::pair(50.0, 70.0));
  CHECK(at(5) == std::pair(70.0, 100.0));
  CHECK(at(6) == std::pair(100.0, 150.0));
  CHECK(of<std::vector<std::string>>(trace.spans[3], "gen_ai.response.finish_reasons").front() == "tool_call");
  CHECK(of<std::int64_t>(trace.spans[6], "gen_ai.usage.input_tokens") ==
        150);  // 600 KV entries, at 4 a token as in the first call
  CHECK(of<std::string>(trace.spans[5], "error.type") == "tool_error");
  CHECK_FALSE(trace.spans[4].failed);
}

TEST_CASE("trace: runs and turns that did not succeed have the kind of error, but no message") {
  for (const auto& [state, kind, type] :
       {std::tuple(RunState::failed, std::optional(ErrorKind::resources), "resources"),
        std::tuple(RunState::timeout, std::optional<ErrorKind>(), "timeout"),
        std::tuple(RunState::cancelled, std::optional<ErrorKind>(), "cancelled"),
        std::tuple(RunState::suspended, std::optional<ErrorKind>(), "")}) {
    AgentRecord solver = turn("solver"), never = turn("never");
    solver.state = state == RunState::cancelled ? TurnState::cancelled : TurnState::failed;
    solver.error = "SECRET";
    solver.finish_reason = FinishReason::cancelled;
    never.state = TurnState::skipped;
    RunRecord record = run_of({solver, never});
    record.state = state;
    record.error_kind = kind;
    const RunTrace trace =
        trace_of(record, {{10, AgentStarted{"solver", "", 1, 100}}, {80, over(solver)}, {80, over(never)}});
    CHECK(names(trace).size() == 3);
    CHECK(trace.spans[0].failed == (state != RunState::suspended));
    if (trace.spans[0].failed) CHECK(of<std::string>(trace.spans[0], "error.type") == type);
    CHECK(of<std::string>(trace.spans[1], "error.type") == name_of(solver.state));
    CHECK(of<std::string>(trace.spans[2], "error.type") == "cancelled");
    CHECK(otlp_json(trace, {}).find("SECRET") == std::string::npos);
    CHECK(chrome_json(trace).find("SECRET") == std::string::npos);
  }
}

TEST_CASE("trace: turns that an earlier process ran have no span") {
  const RunTrace trace =
      trace_of(run_of({turn("before"), turn("now")}),
               {{1, over(turn("before"))}, {5, AgentStarted{"now", "", 1, 9}}, {9, over(turn("now"))}});
  CHECK(names(trace) == std::vector<std::string>{"invoke_workflow team", "invoke_agent now", "chat nano"});
}

TEST_CASE("trace: two turns of one agent in one round are told apart by how long they took") {
  AgentRecord one = turn("solver"), two = turn("solver");
  one.ttft_ms = 10;
  one.decode_ms = 20;
  two.ttft_ms = 30;
  two.decode_ms = 40;
  const RunTrace trace = trace_of(
      run_of({one, two}),
      {{5, AgentStarted{"solver", "", 1, 100}}, {10, Token{"solver", 1, 1, ""}}, {100, over(two)}, {200, over(one)}});
  REQUIRE(names(trace).size() == 3);
  CHECK((trace.spans[1].begin_ms == 170 && trace.spans[1].end_ms == 200));
  CHECK((trace.spans[2].begin_ms == 30 && trace.spans[2].end_ms == 100));
}

TEST_CASE("trace: a call of a model on a server has the server's address and is marked as outgoing") {
  for (const auto& [path, host, port] :
       {std::tuple("http://127.0.0.1:8081", "127.0.0.1", 8081),
        std::tuple("https://api.example.com/v1", "api.example.com", 443), std::tuple("http://[::1]:9", "[::1]", 9),
        std::tuple("http://[::1]", "[::1]", 80)}) {
    RunRecord record = run_of({turn("solver")});
    record.model_path = path;
    const RunTrace trace = trace_of(record, {{1, AgentStarted{"solver", "", 1, 9}}, {9, over(turn("solver"))}});
    const TraceSpan& chat = trace.spans.at(2);
    CHECK(chat.name == "chat main");
    CHECK(chat.calls_out);
    CHECK(of<std::string>(chat, "server.address") == host);
    CHECK(of<std::int64_t>(chat, "server.port") == port);
  }
}

TEST_CASE("trace: hostile texts are escaped, and invalid UTF-8 is replaced") {
  const std::string evil = "\"}],\"x\":[{\\u0000</script>\n\x01\xff\xc3(" + std::string(1, '\0') + "\xe2\x80\xae";
  AgentRecord solver = turn("solver");
  solver.role = evil;
  solver.model = evil;
  solver.slots.push_back({.name = evil, .method = evil, .reason = evil});
  RunRecord record = run_of({solver});
  record.workflow = evil;
  record.model_path = evil;
  record.relay = evil;
  record.date = evil;
  record.version = evil;
  const RunTrace trace = trace_of(record, {{3, ToolCalled{"solver", 1, evil, false, evil, 1e300, evil, evil}},
                                           {5, AgentStarted{"solver", evil, 1, 100}},
                                           {9, over(solver)}});
  CHECK(trace.start_unix_ns == 0);
  const std::string line = otlp_json(trace, {{"service.name", evil}});
  CHECK(line.find('\n') == std::string::npos);
  const Json json = Json::parse(line);
  const Json& spans = json["resourceSpans"][0]["scopeSpans"][0]["spans"];
  REQUIRE(spans.size() == trace.spans.size());
  CHECK(spans[0]["name"].get<std::string>().find("\xef\xbf\xbd") != std::string::npos);
  CHECK(spans[0]["startTimeUnixNano"] == "0");
  for (const char* date : {"2026-13-01T00:00:00Z", "99999-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "now", ""}) {
    record.date = date;
    CHECK(spans_of(record, std::vector<TurnMarks>(1)).start_unix_ns == 0);
  }
}

TEST_CASE("trace: equal records give equal ids, and different records give different ids") {
  RunRecord record = run_of({turn("solver")});
  const std::vector<TurnMarks> marks(1);
  const std::string id = spans_of(record, marks).id;
  CHECK(spans_of(record, marks).id == id);
  record.wall_ms += 0.001;
  CHECK(spans_of(record, marks).id != id);
}

TEST_CASE("trace: spans are a tree, whatever the events and their order") {
  std::uint64_t state = 7;
  const auto below = [&](int count) {
    return static_cast<int>(next_random(state) % static_cast<std::uint64_t>(count));
  };
  std::int64_t spans = 0, tools = 0, shared = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    RunRecord record = run_of({});
    record.wall_ms = below(3) == 0 ? 0 : below(1000);
    const int turns = below(6);
    for (int i = 0; i < turns; ++i) {
      AgentRecord one = turn(std::string(1, static_cast<char>('a' + below(3))), 1 + below(2));
      one.state = static_cast<TurnState>(below(4));
      if (below(3) == 0) one.finish_reason.reset();
      one.ttft_ms = below(300);
      one.prefill_ms = below(300);
      one.decode_ms = below(2) == 0 ? 0 : below(5000);
      one.model = below(4) == 0 ? "other" : "main";
      record.agents.push_back(std::move(one));
    }
    RunMarks marks;
    double now = 0;
    for (int i = below(60); i > 0; --i) {
      now = below(20) == 0 ? now - below(50) : now + below(30);
      const std::string agent(1, static_cast<char>('a' + below(4)));
      const int round = 1 + below(2);
      switch (below(6)) {
        case 0:
          marks.add(AgentStarted{agent, "", round, below(200)}, now);
          break;
        case 1:
          marks.add(Prefill{agent, round, {below(900), below(900), below(900), 0, 0}, 0}, now);
          break;
        case 2:
          marks.add(Token{agent, round, 0, ""}, now);
          break;
        case 3:
          marks.add(ToolCalled{agent, round, "tool", below(2) == 0, "", 1.0 * below(400), "", ""}, now);
          break;
        case 4: {
          Relayed relayed{std::string(1, static_cast<char>('a' + below(4))), agent, round, {}};
          relayed.slot.name = below(2) == 0 ? "agent_a_current" : "agent_a_history_1";
          marks.add(relayed, now);
          break;
        }
        default:
          if (!record.agents.empty()) marks.add(over(record.agents[static_cast<std::size_t>(below(turns))]), now);
      }
    }
    const std::vector<TurnMarks> found = marks.turns(record);
    REQUIRE(found.size() == record.agents.size());
    const RunTrace trace = spans_of(record, found);
    INFO("trial " << trial);
    REQUIRE(wrong_in_tree(trace) == "");
    REQUIRE(wrong_in_chrome(trace) == "");
    std::size_t ran = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      ran += found[i].over_ms && record.agents[i].state != TurnState::skipped ? 1 : 0;
      shared += found[i].shares_name && found[i].over_ms ? 1 : 0;
    }
    std::size_t agents = 0;
    for (const TraceSpan& span : trace.spans) {
      agents += span.name.starts_with("invoke_agent") ? 1 : 0;
      tools += span.name == "execute_tool tool" ? 1 : 0;
    }
    REQUIRE(agents <= ran);
    spans += static_cast<std::int64_t>(trace.spans.size());
  }
  CHECK(spans > 10'000);  // enough random cases had spans
  CHECK(tools > 1000);
  CHECK(shared > 100);
}

}  // namespace spans_test
