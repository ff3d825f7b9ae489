// SPDX-License-Identifier: Apache-2.0
// Agents whose models think on servers: their answers, readers, checks, events and records are as with local models.
#include <catch2/catch.hpp>

#include "engine/remote/open_server.h"
#include "engine/remote/server_api.h"
#include "tests/engine/remote/vllm_server.h"
#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace baton::test::served_thinking_test {
namespace {

using Catch::Matchers::Contains;
using Json = nlohmann::json;

/// A server that takes messages. Its first answers are these, one after another; later ones are the last of them.
struct ChatServer {
  explicit ChatServer(std::vector<Json> all)
      : answers(std::move(all)),
        server([this](const HttpAsked& asked, HttpAnswer& answer) { respond(asked, answer); }) {}

  void respond(const HttpAsked& asked, HttpAnswer& answer) {
    if (asked.path == "/v1/models") return void(answer.whole(200, R"({"data":[{"id":"m"}]})"));
    if (asked.path != "/v1/chat/completions") return void(answer.whole(404, "{}"));
    Json deltas;
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(Json::parse(asked.body));
      deltas = answers[std::min(bodies.size(), answers.size()) - 1];
    }
    answer.begin_stream();
    for (const Json& delta : deltas)
      answer.event(Json{{"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", nullptr}}}}}.dump());
    answer.event(R"({"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]})");
    answer.event(R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":8,)"
                 R"("completion_tokens_details":{"reasoning_tokens":6}}})");
    answer.event("[DONE]");
    answer.end_stream();
  }

  std::shared_ptr<InferenceEngine> open() {
    ServerModel model;
    model.address.endpoint = server.address();
    return open_server(model);
  }

  std::vector<Json> answers;
  std::mutex mutex;
  std::vector<Json> bodies;
  HttpServer server;
};

/// A thinker and a reader of its answer.
struct Team {
  Team() {
    builder.add("thinker", {});
    builder.add("reader", {0});
    builder.output("result", "agent_thinker_current");
    builder.output("thought", "agent_thinker_thinking_current");
  }

  RunRecord run(std::shared_ptr<InferenceEngine> engine) {
    RunRequest request = builder.request(std::move(engine));
    request.on_event = [this](const Event& event) {
      if (const auto* token = std::get_if<Token>(&event); token != nullptr && token->agent == "thinker")
        said += token->text;
      if (const auto* token = std::get_if<ThinkingToken>(&event); token != nullptr && token->agent == "thinker")
        thought += token->text;
      if (const auto* one = std::get_if<Warning>(&event)) warnings.push_back(one->message);
    };
    return run_plan(request);
  }

  PlanBuilder builder;
  std::string said, thought;
  std::vector<std::string> warnings;
};

const Json kThinks = Json::array(
    {{{"reasoning_content", "Rome? "}}, {{"reasoning_content", "No."}}, {{"content", "\n\nPar"}}, {{"content", "is"}}});
const Json kTags =
    Json::array({{{"content", "<thi"}}, {{"content", "nk>Rome? No.</th"}}, {{"content", "ink>\nParis"}}});
const Json kReads = Json::array({{{"content", "read"}}});

TEST_CASE("what a model on a server thinks is in the record and the events, and its reader gets the answer") {
  for (const Json& answer : {kThinks, kTags}) {
    INFO(answer.dump());
    ChatServer server({answer, kReads});
    Team team;
    const RunRecord record = team.run(server.open());
    REQUIRE(record.state == RunState::ok);
    const AgentRecord& thinker = record.agents[0];
    CHECK(thinker.output == "Paris");
    CHECK(thinker.thinking == "Rome? No.");
    CHECK(thinker.thinking_tokens == 6);
    CHECK(thinker.output_tokens == 2);
    CHECK(record.outputs.at("result") == "Paris");
    CHECK(record.outputs.at("thought") == "Rome? No.");
    CHECK(team.said == "Paris");
    CHECK(team.thought == "Rome? No.");
    CHECK(record.agents[1].thinking.empty());
    const std::string asked = server.bodies.at(1).dump();
    CHECK_THAT(asked, Contains("|Paris|") && !Contains("Rome"));
  }
}

TEST_CASE("an answer of a server is checked without the thinking, and another attempt has only its own") {
  ChatServer server({Json::array({{{"reasoning", "42 it is"}}, {{"content", "I do not know"}}}),
                     Json::array({{{"reasoning", "again"}}, {{"content", "42"}}}), kReads});
  Team team;
  team.builder.agent("thinker").output.pattern = "[0-9]+";
  team.builder.plan.turns[0].retry.attempts = 2;
  const RunRecord record = team.run(server.open());
  REQUIRE(record.state == RunState::ok);
  CHECK(record.agents[0].attempts == 2);
  CHECK(record.agents[0].output == "42");
  CHECK(record.agents[0].thinking == "again");
  CHECK(team.thought == "42 it isagain");
  CHECK_THAT(server.bodies.at(1).dump(), Contains("does not match") && !Contains("42 it is"));
}

TEST_CASE("a model on vLLM thinks first and then obeys the constraint of its answer") {
  VllmServer server;
  server.script = [](const std::string& prompt) {
    if (prompt.find("role:reader") != std::string::npos) return ScriptedServer::Script{.text = "read"};
    const bool behind = prompt.find("</think>") != std::string::npos;
    return ScriptedServer::Script{.text = behind ? "Paris" : "<think>\nRome? No.\n</think>\n\nParis it is",
                                  .together = 5};
  };
  ServerModel model;
  model.slowdown = 1000.0;
  model.address.endpoint = server.address();
  model.api = "vllm";
  ModelText text = message_text();
  text.thinking = ThinkingForm{{"<think>", "</think>"}, "\n\n", ""};
  model.text = std::make_shared<const ModelText>(text);
  Team team;
  team.builder.agent("thinker").output.texts = {"Paris", "Rome"};
  const RunRecord record = team.run(open_server(model));
  REQUIRE(record.state == RunState::ok);
  CHECK(record.agents[0].output == "Paris");
  CHECK(record.agents[0].thinking == "Rome? No.");
  CHECK(record.agents[0].thinking_tokens > 0);
  CHECK(record.outputs.at("thought") == "Rome? No.");
  CHECK(team.said == "Paris");
  CHECK_THAT(team.thought, Contains("Rome? No."));
  std::vector<ScriptedServer::Asked> asked;
  for (const auto& one : server.asked()) {
    if (!one.warm_up) asked.push_back(one);
  }
  REQUIRE(asked.size() == 4);
  CHECK_FALSE(asked[0].body.contains("structured_outputs"));
  CHECK(asked[1].body.contains("structured_outputs"));
  CHECK(std::equal(asked[0].prompt.begin(), asked[0].prompt.end(), asked[1].prompt.begin()));
  CHECK(server.faults().empty());
}

TEST_CASE("results of tools fit a server that does not tell its context") {
  // Without a context there is no measure for what is too long.
  ChatServer server(std::vector<Json>{kReads});
  PlanBuilder builder;
  struct Fetch final : Tool {
    std::string name() const override { return "fetch"; }
    std::string check(const std::map<std::string, std::string>&) const override { return {}; }
    ToolResult call(const ToolCall&) const override { return {true, std::string(5000, 'z'), ""}; }
  };
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<Fetch>());
  builder.tools = registry;
  PlannedTurn& turn = builder.add("a", {});
  ToolSpec tool;
  tool.tool = "fetch";
  turn.tools = {tool};
  turn.slots.push_back({"condition_a_current", SlotSource::Kind::tool_result, 0, &full_method(), ""});
  turn.messages[0].pieces.push_back({"", "condition_a_current"});
  CHECK(run_plan(builder.request(server.open())).state == RunState::ok);
  CHECK_THAT(server.bodies.at(0).dump(), Contains(std::string(5000, 'z')));
}

}  // namespace
}  // namespace baton::test::served_thinking_test
