// SPDX-License-Identifier: Apache-2.0
// Chat completions and completions of a server, whole and streamed, with the shipped nano model.
#include <catch2/catch.hpp>

#include "tests/sdk/serve/running_server.h"

namespace completions_test {

namespace {

using baton::test::chat_body;
using baton::test::events_of;
using baton::test::HttpClient;
using baton::test::HttpReply;
using baton::test::kServedQuestion;
using baton::test::RunningServer;
using nlohmann::json;

const char* const kChat = "/v1/chat/completions";

const baton::RunRecord& expected() {
  static const baton::RunRecord record =
      baton::test::served_engine().run(baton::test::served_team(24), {.inputs = {{"question", kServedQuestion}}});
  return record;
}

std::string text_of_stream(const std::vector<json>& chunks) {
  std::string text;
  for (const json& chunk : chunks) {
    for (const json& choice : chunk["choices"])
      text += choice.contains("delta") ? choice["delta"].value("content", "") : choice.value("text", "");
  }
  return text;
}

std::vector<json> chunks_of(const HttpReply& reply) {
  std::vector<std::string> events = events_of(reply.body);
  REQUIRE(!events.empty());
  CHECK(events.back() == "[DONE]");
  events.pop_back();
  std::vector<json> chunks;
  for (const std::string& event : events) chunks.push_back(json::parse(event));
  return chunks;
}

}  // namespace

TEST_CASE("a chat completion is the answer of the workflow, with the tokens of all agents") {
  const RunningServer server;
  const HttpReply reply = server.ask("POST", kChat, chat_body("team"));
  REQUIRE(reply.status == 200);
  CHECK(reply.field("content-type") == "application/json");
  const json body = json::parse(reply.body);
  CHECK(body["object"] == "chat.completion");
  CHECK(body["model"] == "team");
  REQUIRE(expected().state == baton::RunState::ok);
  CHECK(body["choices"][0]["message"]["role"] == "assistant");
  CHECK(body["choices"][0]["message"]["content"] == expected().outputs.at("answer"));
  const bool cut = expected().agents.back().truncated;
  CHECK(body["choices"][0]["finish_reason"] == (cut ? "length" : "stop"));
  std::int64_t prompt = 0, written = 0;
  for (const baton::AgentRecord& agent : expected().agents) {
    prompt += agent.prompt_tokens;
    written += agent.output_tokens;
  }
  CHECK(body["usage"]["prompt_tokens"] == prompt);
  CHECK(body["usage"]["completion_tokens"] == written);
  CHECK(body["usage"]["total_tokens"] == prompt + written);
  const auto cached = body["usage"]["prompt_tokens_details"]["cached_tokens"].get<std::int64_t>();
  CHECK(cached >= 0);
  CHECK(cached < prompt);
  CHECK(body["baton"]["unread_messages"] == 0);
}

TEST_CASE("a completion takes its prompt as the message, and its stream has texts") {
  const RunningServer server;
  const json request = {{"model", "team"}, {"prompt", kServedQuestion}};
  const json body = json::parse(server.ask("POST", "/v1/completions", request.dump()).body);
  CHECK(body["object"] == "text_completion");
  CHECK(body["choices"][0]["text"] == expected().outputs.at("answer"));
  json streamed = request;
  streamed["stream"] = true;
  const std::vector<json> chunks = chunks_of(server.ask("POST", "/v1/completions", streamed.dump()));
  CHECK(text_of_stream(chunks) == expected().outputs.at("answer"));
}

TEST_CASE("a stream is the role, the answer token by token, the reason of its end and the usage, in this order") {
  const RunningServer server;
  const HttpReply reply =
      server.ask("POST", kChat, chat_body("team", {{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  REQUIRE(reply.status == 200);
  CHECK(reply.field("content-type") == "text/event-stream; charset=utf-8");
  const std::vector<json> chunks = chunks_of(reply);
  REQUIRE(chunks.size() >= 5);
  CHECK(chunks.front()["choices"][0]["delta"]["role"] == "assistant");
  CHECK(text_of_stream(chunks) == expected().outputs.at("answer"));
  std::size_t pieces = 0;
  for (std::size_t i = 1; i + 2 < chunks.size(); ++i) {
    CHECK(chunks[i]["object"] == "chat.completion.chunk");
    CHECK(chunks[i]["choices"][0]["finish_reason"].is_null());
    CHECK(!chunks[i].contains("baton"));
    ++pieces;
  }
  CHECK(pieces > 3);
  CHECK(!chunks[chunks.size() - 2]["choices"][0]["finish_reason"].is_null());
  CHECK(chunks.back()["choices"].empty());
  CHECK(chunks.back()["usage"]["completion_tokens"] > 0);
  for (const json& chunk : chunks) CHECK(chunk["id"] == chunks.front()["id"]);
}

TEST_CASE("without include_usage a stream has no usage, and without stream: true options of streams are refused") {
  const RunningServer server;
  for (const json& chunk : chunks_of(server.ask("POST", kChat, chat_body("team", {{"stream", true}}))))
    CHECK(!chunk.contains("usage"));
  CHECK(server.ask("POST", kChat, chat_body("team", {{"stream_options", {{"include_usage", true}}}})).status == 400);
}

TEST_CASE("a client that asks for them gets the run's events in order, which name no file of the server") {
  const RunningServer server;
  const HttpReply reply =
      server.ask("POST", kChat, chat_body("team", {{"stream", true}, {"baton", {{"events", true}}}}));
  const std::vector<json> chunks = chunks_of(reply);
  std::vector<std::string> types;
  std::string of_tokens;
  for (const json& chunk : chunks) {
    if (!chunk.contains("baton")) continue;
    CHECK(chunk["choices"].empty());
    CHECK(chunk["baton"]["t_ms"].is_number());
    types.push_back(chunk["baton"]["type"]);
    if (types.back() == "token" && chunk["baton"]["agent"] == "checker") of_tokens += chunk["baton"]["text"];
  }
  REQUIRE(types.size() > 6);
  CHECK(types.front() == "run_started");
  CHECK(types.back() == "run_finished");
  CHECK(std::count(types.begin(), types.end(), "agent_started") == 2);
  CHECK(std::count(types.begin(), types.end(), "agent_finished") == 2);
  CHECK(of_tokens == expected().outputs.at("answer"));
  CHECK(text_of_stream(chunks) == expected().outputs.at("answer"));
  CHECK(reply.body.find("samples/models") == std::string::npos);
}

TEST_CASE("an answer that may be written again comes whole in a stream, and is the same text") {
  const RunningServer server({}, baton::test::one_served(baton::test::served_team(24, 1, ", retry: {attempts: 2}")));
  const std::vector<json> chunks = chunks_of(server.ask("POST", kChat, chat_body("team", {{"stream", true}})));
  REQUIRE(chunks.size() == 3);
  CHECK(chunks[1]["choices"][0]["delta"]["content"] == expected().outputs.at("answer"));
}

TEST_CASE("a connection serves one request after the other, also those that were sent at once") {
  const RunningServer server;
  HttpClient client(server.port());
  CHECK(client.ask("GET", "/health").status == 200);
  const std::string request = HttpClient::request("POST", kChat, chat_body("team"));
  client.send(request + request + HttpClient::request("GET", "/v1/models"));
  const json first = json::parse(client.receive().body), second = json::parse(client.receive().body);
  CHECK(first["choices"] == second["choices"]);
  CHECK(first["id"] != second["id"]);
  CHECK(json::parse(client.receive().body)["object"] == "list");
  client.send(HttpClient::request("POST", kChat, chat_body("team", {{"stream", true}})));
  CHECK(text_of_stream(chunks_of(client.receive())) == expected().outputs.at("answer"));
  CHECK(client.ask("GET", "/health").status == 200);
}

TEST_CASE("a client of HTTP 1.0 gets a stream that ends with the connection") {
  const RunningServer server;
  HttpClient client(server.port());
  const std::string body = chat_body("team", {{"stream", true}});
  client.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const HttpReply head = client.receive_head();
  CHECK(head.status == 200);
  CHECK(head.field("transfer-encoding").empty());
  CHECK(client.rest().ends_with("data: [DONE]\n\n"));
}

TEST_CASE("clients at the same time get the answers that each would get alone") {
  const RunningServer server;
  std::vector<std::thread> clients;
  std::vector<std::string> answers(8);
  for (std::string& answer : answers) {
    clients.emplace_back([&] {
      const json body = json::parse(server.ask("POST", kChat, chat_body("team")).body);
      answer = body["choices"][0]["message"]["content"];
    });
  }
  for (std::thread& client : clients) client.join();
  for (const std::string& answer : answers) CHECK(answer == expected().outputs.at("answer"));
}

TEST_CASE("models are the served workflows, with their inputs") {
  const RunningServer server;
  const json list = json::parse(server.ask("GET", "/v1/models").body);
  REQUIRE(list["data"].size() == 2);
  CHECK(list["data"][0]["id"] == "team");
  CHECK(list["data"][0]["baton"]["message"] == "question");
  CHECK(list["data"][0]["baton"]["streams"] == true);
  CHECK(json::parse(server.ask("GET", "/v1/models/slow").body)["id"] == "slow");
  CHECK(server.ask("GET", "/v1/models/other").status == 404);
  CHECK(server.ask("GET", "/v1/models/..%2f..%2fetc").status == 404);
}

namespace {

baton::Workflow chat_workflow() {
  return baton::Workflow::parse(R"(
version: 1
inputs: {before: {type: messages}, said: {type: string, required: true}}
models: {main: {path: nano}}
defaults: {max_tokens: 8}
agents:
  assistant: {prompt: {messages: [{role: system, content: Be brief.}, {history: before}, {role: user, content: "{{ said }}"}]}}
workflow: {topology: single, agents: [assistant]}
)");
}

baton::serve::ServedWorkflows one_more(const std::string& name, const baton::Workflow& workflow) {
  baton::serve::ServedWorkflows workflows = baton::test::two_served();
  workflows.add(baton::serve::serve_workflow(name, workflow));
  return workflows;
}

}  // namespace

TEST_CASE("the reason of an answer's end is that of the agents whose outputs it shows") {
  const auto reason = [](int of_writer, int of_judge, const std::string& output) {
    const baton::Workflow workflow = baton::Workflow::parse(
        "version: 1\ninputs: {question: {type: string, required: true}}\nmodels: {main: {path: nano}}\nagents:\n"
        "  writer: {prompt: \"{{ question }}\", max_tokens: " +
        std::to_string(of_writer) +
        "}\n"
        "  judge: {prompt: \"Good? {{ agent_writer_current }}\", max_tokens: " +
        std::to_string(of_judge) +
        ", output: {regex: \"[a-z]{3}\"}}\n"
        "workflow: {topology: chain}\noutputs: {answer: \"" +
        output + "\"}\n");
    const RunningServer server({}, one_more("judged", workflow));
    const json body = json::parse(server.ask("POST", kChat, chat_body("judged")).body);
    CHECK(!body["baton"]["warnings"].empty());
    for (const json& one : body["baton"]["warnings"]) {
      CHECK(one["code"] == "answer_cut_off");
      CHECK(one["agent"] == "writer");
    }
    const std::vector<std::string> log = server.log();
    CHECK(std::any_of(log.begin(), log.end(), [](const std::string& line) {
      return line.find("warning: agent 'writer': the answer was cut off") != std::string::npos;
    }));
    return body["choices"][0]["finish_reason"].get<std::string>();
  };
  CHECK(reason(2, 30, "{{ agent_writer_current }}") == "length");  // the judge wrote last, and to its end
  CHECK(reason(2, 30, "{{ agent_judge_current }}") == "stop");
  CHECK(reason(2, 30, "{{ agent_writer_current }}: {{ agent_judge_current }}") == "length");
}

TEST_CASE("what of a request changes nothing is named, and a conversation with calls of tools is taken") {
  const RunningServer server({}, one_more("chat", chat_workflow()));
  const json plain = json::parse(server.ask("POST", kChat, chat_body("team")).body);
  CHECK(plain["baton"]["unread_fields"] == json::array());
  const json named =
      json::parse(server.ask("POST", kChat, chat_body("team", {{"stop", "x"}, {"max_tokens", 3}, {"user", "u"}})).body);
  CHECK(named["baton"]["unread_fields"] == json{"max_tokens", "stop"});
  const json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  CHECK(server.ask("POST", kChat, chat_body("team", {{"tools", {tool}}, {"tool_choice", "none"}})).status == 200);
  CHECK(server.ask("POST", kChat, chat_body("team", {{"tools", {tool}}})).status == 400);

  const json call = {{"id", "c1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}};
  const json history = {{{"role", "user"}, {"content", "x"}},
                        {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
                        {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "42"}},
                        {{"role", "user"}, {"content", "so?"}}};
  for (const char* model : {"team", "chat"}) {
    const HttpReply reply = server.ask("POST", kChat, json{{"model", model}, {"messages", history}}.dump());
    INFO(reply.body);
    CHECK(reply.status == 200);
    CHECK(json::parse(reply.body)["baton"]["unread_messages"] == (std::string(model) == "team" ? 3 : 0));
  }
}

TEST_CASE("until the last chunk of a stream with usage, the usage is null") {
  const RunningServer server;
  const std::vector<json> chunks = chunks_of(
      server.ask("POST", kChat, chat_body("team", {{"stream", true}, {"stream_options", {{"include_usage", true}}}})));
  for (std::size_t i = 0; i + 1 < chunks.size(); ++i) {
    REQUIRE(chunks[i].contains("usage"));
    CHECK(chunks[i]["usage"].is_null());
  }
  CHECK(chunks.back()["usage"].is_object());
}

TEST_CASE("a prompt that no context holds is the client's mistake, whole or in a stream") {
  const RunningServer server({}, one_more("chat", chat_workflow()));
  std::string hens;
  for (int i = 0; i < 3000; ++i) hens += "hen ";
  const auto refused = [&](const std::string& path, const json& body, const char* param, const char* input) {
    const HttpReply reply = server.ask("POST", path, body.dump());
    CHECK(reply.status == 400);
    const json error = json::parse(reply.body)["error"];
    CHECK(error["type"] == "invalid_request_error");
    CHECK(error["code"] == "context_length_exceeded");
    CHECK(error["param"] == param);
    CHECK_THAT(error["message"].get<std::string>(), Catch::Contains("input '" + std::string(input) + "'"));
  };
  const json user = {{"role", "user"}, {"content", hens}};
  const json last = {{"role", "user"}, {"content", "Hi"}};
  refused(kChat, {{"model", "team"}, {"messages", {user}}}, "messages", "question");
  refused(kChat, {{"model", "chat"}, {"messages", {user, last}}}, "messages", "before");
  refused("/v1/completions", {{"model", "team"}, {"prompt", hens}}, "prompt", "question");
  const json streamed = {{"model", "team"}, {"messages", {user}}, {"stream", true}};
  CHECK_THAT(server.ask("POST", kChat, streamed.dump()).body, Catch::Contains("context_length_exceeded"));
}

TEST_CASE("a completion of a workflow with a conversation has none, or the one that it gives") {
  const RunningServer server({}, one_more("chat", chat_workflow()));
  json request = {{"model", "chat"}, {"prompt", "Who am I?"}};
  const json none = json::parse(server.ask("POST", "/v1/completions", request.dump()).body);
  const auto tokens = [](const json& body) { return body["usage"]["prompt_tokens"].get<int>(); };
  request["baton"]["inputs"]["before"] = {{{"role", "user"}, {"content", "My name is Ada."}}};
  const json given = json::parse(server.ask("POST", "/v1/completions", request.dump()).body);
  CHECK(tokens(given) > tokens(none));
  json chat = json::parse(chat_body("chat"));
  chat["baton"]["inputs"]["before"] = json::array();
  CHECK(server.ask("POST", kChat, chat.dump()).status == 400);
}

TEST_CASE("earlier messages fill an input of type messages, and are counted as unread without one") {
  const baton::Workflow chat = chat_workflow();
  baton::serve::ServedWorkflows workflows = baton::test::two_served();
  workflows.add(baton::serve::serve_workflow("chat", chat));
  const RunningServer server({}, workflows);
  const json messages = {{{"role", "system"}, {"content", "Be kind."}},
                         {{"role", "user"}, {"content", "My name is Ada."}},
                         {{"role", "assistant"}, {"content", "Hello, Ada."}},
                         {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Who am I?"}}}}}};
  const json with = json::parse(server.ask("POST", kChat, json{{"model", "chat"}, {"messages", messages}}.dump()).body);
  CHECK(with["baton"]["unread_messages"] == 0);
  const json before = {messages[0], messages[1], messages[2]};
  const baton::RunRecord record =
      baton::test::served_engine().run(chat, {.inputs = {{"before", before.dump()}, {"said", "Who am I?"}}});
  CHECK(with["usage"]["prompt_tokens"] == record.agents[0].prompt_tokens);
  CHECK(with["choices"][0]["message"]["content"] == record.outputs.at("answer"));
  const json without =
      json::parse(server.ask("POST", kChat, json{{"model", "team"}, {"messages", messages}}.dump()).body);
  CHECK(without["baton"]["unread_messages"] == 3);
}

}  // namespace completions_test
