// SPDX-License-Identifier: Apache-2.0
// Calls that have to be approved in served runs: who is asked, who answers, and what becomes of a question.
#include <catch2/catch.hpp>

#include <atomic>
#include <set>

#include "sdk/serve/served_run.h"
#include "tests/sdk/serve/running_server.h"

namespace approvals_test {

namespace {

using namespace std::chrono_literals;
using baton::serve::ApiError;
using baton::serve::Approvals;
using baton::serve::ServeOptions;
using baton::test::chat_body;
using baton::test::events_of;
using baton::test::HttpClient;
using baton::test::HttpReply;
using baton::test::RunningServer;
using nlohmann::json;

const char* const kChat = "/v1/chat/completions";

/// A workflow whose model calls `remove`, which has to be approved, and what was removed.
struct Cleaner {
  std::mutex mutex;
  std::vector<std::string> removed;

  std::vector<std::string> calls() {
    const std::lock_guard lock(mutex);
    return removed;
  }

  baton::serve::ServedWorkflows served() {
    baton::Tools tools;
    tools.add("remove",
              {"Removes a file.", R"({"properties": {"path": {"enum": ["a.txt", "b.txt"]}}, "required": ["path"],
                                      "additionalProperties": false})"},
              [this](const baton::ToolCall& call) {
                const std::lock_guard lock(mutex);
                removed.push_back(json::parse(call.arguments).at("path"));
                return baton::ToolResult{.ok = true, .text = "removed " + removed.back()};
              });
    return baton::test::one_served(baton::Workflow::parse(R"(
version: 1
name: cleaner
inputs: {question: {type: string, required: true}}
models: {main: {path: nano}}
defaults: {max_tokens: 300}
agents:
  cleaner:
    prompt: "Remove the file a.txt.\n{{ question }}"
    tools: [{call: remove}]
    calls: {max: 1, direct: true, approve: always, tool_choice: required, text: forbidden}
)",
                                                          {.tools = tools}),
                                   "cleaner");
  }
};

json open_ones(const RunningServer& server) { return json::parse(server.ask("GET", "/v1/approvals").body)["data"]; }

/// Waits until so many questions are open.
json wait_for(const RunningServer& server, std::size_t count) {
  json open = open_ones(server);
  for (int i = 0; i < 500 && open.size() != count; ++i) {
    std::this_thread::sleep_for(20ms);
    open = open_ones(server);
  }
  REQUIRE(open.size() == count);
  return open;
}

HttpReply decide(const RunningServer& server, const std::string& id, const json& answer) {
  return server.ask("POST", "/v1/approvals/" + id, answer.dump());
}

std::string code_of(const HttpReply& reply) { return json::parse(reply.body)["error"]["code"]; }

/// The question in the stream of a client that has just sent its request.
json question_in(HttpClient& client, std::string& stream) {
  CHECK(client.receive_head().status == 200);
  for (std::string chunk = client.next_chunk(); !chunk.empty(); chunk = client.next_chunk()) {
    stream += chunk;
    for (const std::string& event : events_of(chunk)) {
      const json one = json::parse(event);
      if (one.contains("baton") && one["baton"].value("type", "") == "approval") {
        CHECK(one["choices"].empty());
        return one["baton"];
      }
    }
  }
  FAIL("the stream has no question");
  return {};
}

}  // namespace

TEST_CASE("a streaming client hears of a call that waits, and an answer lets the run go on") {
  Cleaner cleaner;
  const RunningServer server({}, cleaner.served());
  HttpClient client(server.port());
  client.send(
      HttpClient::request("POST", kChat, chat_body("cleaner", {{"stream", true}, {"baton", {{"events", true}}}})));
  std::string stream;
  const json question = question_in(client, stream);
  CHECK(question["agent"] == "cleaner");
  CHECK(question["turn"] == "cleaner/1");
  CHECK(question["tool"] == "remove");
  const std::string path = json::parse(question["arguments"].get<std::string>())["path"];
  CHECK(question["question"].get<std::string>().find("remove") != std::string::npos);
  const json open = wait_for(server, 1);
  for (const char* member : {"id", "agent", "turn", "tool", "arguments", "question"})
    CHECK(open[0][member] == question[member]);
  CHECK(open[0]["model"] == "cleaner");
  CHECK(open[0]["object"] == "approval");
  CHECK(cleaner.calls().empty());

  const std::string id = question["id"];
  CHECK(decide(server, id, {{"decision", "allow"}}).status == 200);
  for (std::string chunk = client.next_chunk(); !chunk.empty(); chunk = client.next_chunk()) stream += chunk;
  CHECK(stream.find("[DONE]") != std::string::npos);
  CHECK(stream.find("removed " + path) != std::string::npos);
  CHECK(stream.find("\"call_decided\"") != std::string::npos);
  CHECK(cleaner.calls() == std::vector<std::string>{path});
  const HttpReply again = decide(server, id, {{"decision", "deny"}});
  CHECK(again.status == 409);
  CHECK(code_of(again) == "approval_answered");
  CHECK(open_ones(server).empty());
}

TEST_CASE("a call is denied with a reason, or made with other arguments") {
  Cleaner cleaner;
  const RunningServer server({}, cleaner.served());
  for (const bool denies : {true, false}) {
    HttpClient client(server.port());
    client.send(HttpClient::request("POST", kChat, chat_body("cleaner")));
    const std::string id = wait_for(server, 1)[0]["id"];
    const json answer = denies ? json{{"decision", "deny"}, {"reason", "not today"}}
                               : json{{"decision", "allow"}, {"arguments", {{"path", "b.txt"}}}};
    CHECK(decide(server, id, answer).status == 200);
    const HttpReply reply = client.receive();
    CHECK(reply.status == 200);
    if (denies) {
      CHECK(cleaner.calls().empty());
    } else {
      CHECK(cleaner.calls() == std::vector<std::string>{"b.txt"});
      CHECK(json::parse(reply.body)["choices"][0]["message"]["content"].get<std::string>().find("removed b.txt") !=
            std::string::npos);
    }
  }
}

TEST_CASE("what is no answer is refused, and the question stays open") {
  Cleaner cleaner;
  const RunningServer server({}, cleaner.served());
  HttpClient client(server.port());
  client.send(HttpClient::request("POST", kChat, chat_body("cleaner")));
  const std::string id = wait_for(server, 1)[0]["id"];
  for (const char* body :
       {"{", "[]", "{}", R"({"decision": "maybe"})", R"({"decision": 1})", R"({"decision": "allow", "reason": "x"})",
        R"({"decision": "deny", "reason": 1})", R"({"decision": "deny", "arguments": {}})",
        R"({"decision": "allow", "arguments": "x"})", R"({"decision": "allow", "more": 1})", "\"allow\"", "null"}) {
    INFO(body);
    CHECK(server.ask("POST", "/v1/approvals/" + id, body).status == 400);
  }
  CHECK(server.ask("GET", "/v1/approvals/" + id).status == 405);
  CHECK(server.ask("POST", "/v1/approvals", "{}").status == 405);
  CHECK(code_of(decide(server, "appr-0", {{"decision", "allow"}})) == "approval_not_found");
  CHECK(decide(server, "appr-0", {{"decision", "allow"}}).status == 404);
  const std::string plain = "{\"decision\": \"allow\"}";
  HttpClient form(server.port());  // as a page of another site could send it
  form.send("POST /v1/approvals/" + id +
            " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\nContent-Length: " +
            std::to_string(plain.size()) + "\r\n\r\n" + plain);
  CHECK(form.receive().status == 415);
  CHECK(server.ask("POST", "/v1/approvals/" + id, plain, "Origin: http://elsewhere.example\r\n").status == 403);
  CHECK(wait_for(server, 1)[0]["id"] == id);
  CHECK(cleaner.calls().empty());
  CHECK(decide(server, id, {{"decision", "allow"}}).status == 200);
  CHECK(client.receive().status == 200);
}

TEST_CASE("a client that goes takes its question along") {
  Cleaner cleaner;
  const RunningServer server({}, cleaner.served());
  std::string id;
  {
    HttpClient client(server.port());
    client.send(HttpClient::request("POST", kChat, chat_body("cleaner", {{"stream", true}})));
    std::string stream;
    id = question_in(client, stream)["id"];
  }
  wait_for(server, 0);
  const HttpReply late = decide(server, id, {{"decision", "allow"}});
  CHECK(late.status == 410);
  CHECK(code_of(late) == "approval_closed");
  CHECK(server.comes_to("baton_requests_running", 0));
  CHECK(cleaner.calls().empty());
}

TEST_CASE("a question that nobody answers ends its run, and a server that asks nobody ends it at once") {
  for (const auto patience : {300ms, 0ms}) {
    INFO(patience.count());
    Cleaner cleaner;
    ServeOptions options;
    options.approval_timeout = patience;
    const RunningServer server(options, cleaner.served());
    HttpClient client(server.port());
    client.send(HttpClient::request("POST", kChat, chat_body("cleaner")));
    const HttpReply reply = client.receive();
    CHECK(reply.status == 409);
    CHECK(code_of(reply) == "suspended");
    CHECK(reply.body.find(patience == 0ms ? "asks nobody" : "0.3 s") != std::string::npos);
    CHECK(open_ones(server).empty());
    CHECK(cleaner.calls().empty());
  }
}

TEST_CASE("the time of a run stands still while its call waits") {
  Cleaner cleaner;
  ServeOptions options;
  options.run_timeout = std::chrono::milliseconds(static_cast<int>(4000 * baton::test::kSlowdown));
  const RunningServer server(options, cleaner.served());
  HttpClient client(server.port());
  client.send(HttpClient::request("POST", kChat, chat_body("cleaner")));
  const std::string id = wait_for(server, 1)[0]["id"];
  std::this_thread::sleep_for(options.run_timeout + 500ms);
  CHECK(decide(server, id, {{"decision", "allow"}}).status == 200);
  CHECK(client.receive().status == 200);
}

TEST_CASE("a server that stops closes its questions, and tells the clients") {
  Cleaner cleaner;
  RunningServer server({}, cleaner.served());
  HttpClient streaming(server.port()), whole(server.port());
  streaming.send(HttpClient::request("POST", kChat, chat_body("cleaner", {{"stream", true}})));
  std::string stream;
  question_in(streaming, stream);
  whole.send(HttpClient::request("POST", kChat, chat_body("cleaner")));
  wait_for(server, 2);
  const auto begin = std::chrono::steady_clock::now();
  server.end();
  CHECK(std::chrono::steady_clock::now() - begin < 15s);  // it does not wait for answers
  const HttpReply reply = whole.receive();
  CHECK(reply.status == 503);
  CHECK(code_of(reply) == "cancelled");
  CHECK(streaming.rest().find("\"cancelled\"") != std::string::npos);
  CHECK(cleaner.calls().empty());
}

namespace {

constexpr Approvals::Side kTelling = Approvals::Side::telling, kWaiting = Approvals::Side::waiting;

Approvals::Question question(const std::string& run, const std::string& turn, const std::string& arguments = "{}") {
  baton::Asked asked;
  asked.agent = "a";
  asked.turn = turn;
  asked.tool = "remove";
  asked.arguments = arguments;
  return {run, "cleaner", asked};
}

int status_of(Approvals& approvals, const std::string& id, const char* body = R"({"decision": "allow"})") {
  try {
    approvals.answer(id, body);
    return 200;
  } catch (const ApiError& error) {
    return error.status;
  }
}

}  // namespace

TEST_CASE("questions are told apart by run, call and arguments, and may be answered before anybody waits") {
  for (const auto& [first, second] : {std::pair(kTelling, kWaiting), std::pair(kWaiting, kTelling)}) {
    Approvals approvals(10s);
    const std::string id = approvals.open(question("r", "a/1"), first);
    std::set<std::string> ids = {id};
    ids.insert(approvals.open(question("r", "a/2"), first));
    ids.insert(approvals.open(question("s", "a/1"), first));
    CHECK(ids.size() == 3);
    CHECK(json::parse(approvals.list_json())["data"].size() == 3);
    CHECK(json::parse(approvals.list_json())["data"][0]["id"] == id);
    CHECK(status_of(approvals, id, R"({"decision": "deny", "reason": "no"})") == 200);
    CHECK(approvals.open(question("r", "a/1"), second) == id);  // whoever comes last finds the same
    CHECK(approvals.wait(id, {}) == std::optional<std::string>("deny: no"));
    approvals.close("r");
    CHECK(json::parse(approvals.list_json())["data"].size() == 1);
    for (const std::string& one : ids) CHECK((status_of(approvals, one) == 409) == (one == id));
  }
}

TEST_CASE("an answer never counts for another call of the same number, and nobody is asked about one that is over") {
  Approvals approvals(200ms);
  const std::string old = approvals.open(question("r", "a/2", R"({"of": "A"})"), kTelling);  // its attempt failed
  const bool answered = GENERATE(false, true);
  if (answered) CHECK(status_of(approvals, old) == 200);
  const std::string now = approvals.open(question("r", "a/2", R"({"of": "B"})"), kTelling);
  CHECK(now != old);
  CHECK(status_of(approvals, old) == (answered ? 409 : 410));
  CHECK(json::parse(approvals.list_json())["data"].size() == 1);
  CHECK(approvals.open(question("r", "a/2", R"({"of": "B"})"), kWaiting) == now);
  CHECK(approvals.wait(now, {}) == std::nullopt);  // nobody has answered it
  // The same call again, in a third attempt, is asked about again.
  const std::string third = approvals.open(question("r", "a/2", R"({"of": "B"})"), kTelling);
  CHECK(third != now);
  CHECK(approvals.open(question("r", "a/2", R"({"of": "B"})"), kWaiting) == third);
}

TEST_CASE("what became of questions is remembered for a while, within bounds") {
  Approvals approvals(10s);
  const std::string first = approvals.open(question("first", "a/1"), kTelling);
  approvals.close("first");
  CHECK(status_of(approvals, first) == 410);
  const std::string waits = approvals.open(question("waits", "a/1"), kTelling);
  std::string last;
  for (int i = 0; i < 3000; ++i) {
    last = approvals.open(question("run" + std::to_string(i), "a/1"), kTelling);
    approvals.close("run" + std::to_string(i));
  }
  CHECK(status_of(approvals, first) == 404);
  CHECK(status_of(approvals, last) == 410);
  CHECK(status_of(approvals, waits) == 200);
  CHECK(approvals.wait(waits, {}) == std::optional<std::string>("allow"));
}

TEST_CASE("of answers that come at once one counts, and every wait ends") {
  for (int round = 0; round < 50; ++round) {
    Approvals approvals(10s);
    std::stop_source stop;
    const std::string id = approvals.open(question("r", "a/1"), kTelling),
                      stopped = approvals.open(question("r", "a/2"), kTelling);
    std::atomic<int> taken = 0;
    std::optional<std::string> answer, none = "unset";
    std::vector<std::thread> threads;
    threads.emplace_back([&] { answer = approvals.wait(id, {}); });
    threads.emplace_back([&] { none = approvals.wait(stopped, stop.get_token()); });
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { taken += status_of(approvals, id) == 200 ? 1 : 0; });
    threads.emplace_back([&] { stop.request_stop(); });
    for (std::thread& thread : threads) thread.join();
    CHECK(taken == 1);
    CHECK(answer == std::optional<std::string>("allow"));
    CHECK(none == std::nullopt);
    CHECK(status_of(approvals, stopped) == 410);
  }
  Approvals approvals(10s);
  approvals.stop();
  CHECK(approvals.wait(approvals.open(question("r", "a/1"), kTelling), {}) == std::nullopt);
}

}  // namespace approvals_test
