// SPDX-License-Identifier: Apache-2.0
#include <baton/event.h>
#include <baton/run_record.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/workflow_files.h"

namespace record_json_test {

using namespace baton;
using nlohmann::json;

TEST_CASE("a run record as JSON") {
  RunRecord record;
  record.workflow = "team";
  record.model_path = "models/x";
  record.model_fingerprint = "abc";
  record.seed = 18446744073709551615u;
  record.outputs = {{"answer", "4\xff"}};
  record.wall_ms = std::numeric_limits<double>::infinity();
  AgentRecord agent;
  agent.agent = "a";
  agent.ttft_ms = std::nan("");
  agent.slots.push_back({.name = "s",
                         .tokens = 3,
                         .method = "full",
                         .recomputed_tokens = 3,
                         .kv_reuse_rate = 0.0,
                         .kv_reuse_bound = 0.0,
                         .hops = 0,
                         .reason = ""});
  record.agents.push_back(agent);

  const json parsed = json::parse(record.to_json());
  CHECK(parsed["schema"] == 1);
  CHECK(parsed["model"] == json({{"path", "models/x"}, {"fingerprint", "abc"}}));
  CHECK(parsed["seed"] == 18446744073709551615u);
  CHECK(parsed["outputs"]["answer"] == "4\xEF\xBF\xBD");
  CHECK(parsed["wall_ms"] == 0.0);
  CHECK(parsed["agents"][0]["ttft_ms"] == 0.0);
  for (const char* key : {"version",  "date",  "threads", "inputs",     "load_ms", "measure_ms", "schema",
                          "workflow", "state", "error",   "error_kind", "model",   "device",     "device_fallback",
                          "relay",    "seed",  "outputs", "wall_ms",    "agents",  "memory"}) {
    CHECK(parsed.contains(key));
  }
  for (const char* key : {"agent",
                          "turn",
                          "role",
                          "model",
                          "round",
                          "state",
                          "error",
                          "attempts",
                          "prompt_tokens",
                          "output_tokens",
                          "output",
                          "answer",
                          "probabilities",
                          "finish_reason",
                          "truncated",
                          "kv",
                          "ttft_ms",
                          "prefill_ms",
                          "decode_ms",
                          "tokens_per_s",
                          "slots",
                          "drafted_tokens",
                          "accepted_tokens",
                          "tentative_ms",
                          "tentative_tokens",
                          "confirmed_tokens",
                          "expected_nats",
                          "guard_nats",
                          "guard_change",
                          "decisions",
                          "decisions_exact",
                          "decisions_changed"}) {
    CHECK(parsed["agents"][0].contains(key));
  }
  CHECK(parsed["agents"][0]["guard_nats"].is_null());
  for (const char* key : {"name", "tokens", "method", "reused_tokens", "recomputed_tokens", "ahead_tokens",
                          "kv_reuse_rate", "kv_reuse_bound", "hops", "corrected", "reason"}) {
    CHECK(parsed["agents"][0]["slots"][0].contains(key));
  }
  CHECK(record.to_json(-1).find('\n') == std::string::npos);
}

TEST_CASE("inputs and outputs keep their order in JSON") {
  RunRecord record;
  record.inputs = {{"zone", "1"}, {"area", "2"}};
  record.outputs["second"] = "b";
  record.outputs["first"] = "a";
  record.outputs["second"] = "c";
  const auto parsed = nlohmann::ordered_json::parse(record.to_json());
  CHECK(parsed["inputs"].dump() == R"({"zone":"1","area":"2"})");
  CHECK(parsed["outputs"].dump() == R"({"second":"c","first":"a"})");
}

TEST_CASE("warnings are in the record and in events by their codes, which the documents explain") {
  RunRecord record;
  record.warnings.push_back({WarningCode::history_forgotten, "a", "a#2", "gone\xc3", 3});
  const json expected = {
      {"code", "history_forgotten"}, {"agent", "a"}, {"turn", "a#2"}, {"message", "gone\xEF\xBF\xBD"}, {"count", 3}};
  CHECK(json::parse(record.to_json())["warnings"] == json::array({expected}));
  const json event = json::parse(to_json(Warning{"gone", WarningCode::history_forgotten, "a", "a#2"}));
  CHECK(event["code"] == "history_forgotten");
  CHECK(event["turn"] == "a#2");
  const std::string page = test::read_text(test::source_folder() / "docs/cli.md");
  for (const std::string_view name : kNamesOf<WarningCode>)
    CHECK_THAT(page, Catch::Contains("`" + std::string(name) + "`"));
}

TEST_CASE("events are single lines of JSON with a type") {
  const std::vector<std::pair<Event, std::string>> events = {
      {RunStarted{"w", 2}, "run_started"},
      {AgentStarted{"a", "r", 1, 5}, "agent_started"},
      {Prefill{"a", 1, {}, 1.5}, "prefill"},
      {Token{"a", 1, 7, "x\n\xc3"}, "token"},
      {ToolCalled{"a", 1, "python", false, "bad", 2.0}, "tool_called"},
      {AgentFinished{}, "agent_finished"},
      {Relayed{"a", "b", 1, {}}, "relayed"},
      {Warning{"w"}, "warning"},
      {RunFinished{}, "run_finished"},
      {PrefillProgress{"a", 1, 512, 1700}, "prefill_progress"},
      {TentativeToken{{"a", 1, 7, "x"}}, "tentative_token"},
      {Confirmed{"a", 1, 7, 9}, "confirmed"},
      {Asked{"a", 1, "why?"}, "asked"}};
  for (const auto& [event, type] : events) {
    const std::string line = to_json(event);
    CHECK(line.find('\n') == std::string::npos);
    json parsed = json::parse(line);
    CHECK(parsed["type"] == type);
    const json timed = json::parse(to_json(event, 12.34567));
    parsed["t_ms"] = 12.346;
    CHECK(timed == parsed);
  }
  ToolCalled called;
  called.turn = "look#2";
  CHECK(json::parse(to_json(called))["turn"] == "look#2");
  Asked asked;
  asked.turn = "approval";
  CHECK(json::parse(to_json(asked))["turn"] == "approval");
  CHECK(json::parse(to_json(Token{"a", 1, 7, "x\xc3"})) ==
        json({{"type", "token"}, {"agent", "a"}, {"round", 1}, {"id", 7}, {"text", "x\xEF\xBF\xBD"}}));
}

}  // namespace record_json_test
