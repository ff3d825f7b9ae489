// SPDX-License-Identifier: Apache-2.0
// What clients of a server may do wrong, by accident or on purpose: malformed requests, bodies over the limit, slow and
// vanishing clients, floods.
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <sstream>

#include "tests/sdk/serve/running_server.h"

namespace hostile_clients_test {

namespace {

using namespace std::chrono_literals;
using baton::serve::ServeOptions;
using baton::test::chat_body;
using baton::test::HttpClient;
using baton::test::HttpReply;
using baton::test::RunningServer;
using nlohmann::json;

const char* const kChat = "/v1/chat/completions";

std::string code_of(const HttpReply& reply) {
  const json body = json::parse(reply.body, nullptr, false);
  return body.is_object() && body.contains("error") ? body["error"]["code"].get<std::string>() : "";
}

/// A chat completion of workflow "slow" that is running.
struct SlowClient {
  explicit SlowClient(const RunningServer& server, bool stream = true) : client(server.port()) {
    client.send(HttpClient::request("POST", kChat, chat_body("slow", {{"stream", stream}})));
    started = !stream || client.receive_head().status == 200;
  }
  HttpClient client;
  bool started;
};

}  // namespace

TEST_CASE("malformed requests get a status of 4xx in the form of an error, and the server goes on") {
  const RunningServer server;
  const std::string host = " HTTP/1.1\r\nHost: localhost\r\n";
  const std::vector<std::pair<std::string, int>> requests = {
      {"\r\n\r\n\r\n", 400},
      {"GET\r\n\r\n", 400},
      {"GET / HTTP/9.9\r\n\r\n", 400},
      {"GET /" + host + "No colon\r\n\r\n", 400},
      {"GET /" + host + "A: b\r\n\tc\x01\r\n\r\n", 400},
      {std::string("GET /\0 HTTP/1.1\r\n\r\n", 20), 400},
      {"POST " + std::string(kChat) + host + "Content-Type: application/json\r\nContent-Length: -1\r\n\r\n", 400},
      {"POST " + std::string(kChat) + host + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400},
      {"POST " + std::string(kChat) + host +
           "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n{}",
       400},
      {"GET /" + host + "A: " + std::string(20'000, 'a') + "\r\n\r\n", 431},
      {"GET /" + std::string(20'000, 'a') + host + "\r\n", 431},
      {"\x16\x03\x01\x02" + std::string(600, 'x'), 400},  // a client that speaks TLS
      {"DELETE /v1/models" + host + "\r\n", 405},
      {"GET /v1/chat/completions" + host + "\r\n", 405},
      {"GET /../../etc/passwd" + host + "\r\n", 404},
      {"GET //etc/passwd" + host + "\r\n", 404},
      {"GET http://elsewhere/" + host + "\r\n", 404},
      {"OPTIONS *" + host + "\r\n", 404},
  };
  for (const auto& [bytes, status] : requests) {
    HttpClient client(server.port());
    client.send(bytes);
    const HttpReply reply = client.receive();
    INFO(bytes.substr(0, 80));
    CHECK(reply.status == status);
    CHECK(!code_of(reply).empty());
  }
  CHECK(server.ask("GET", "/health").status == 200);
}

TEST_CASE("a request whose end is in doubt is refused, and what follows it is not read") {
  const RunningServer server;
  const std::string post = "POST " + std::string(kChat), json_body = "Content-Type: application/json\r\n";
  const std::string host = "\r\nHost: localhost\r\n" + json_body;
  const std::vector<std::string> fields = {
      "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
      "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
      "Transfer-Encoding: gzip\r\nContent-Length: 2\r\n",
      "Transfer-Encoding: gzip\r\n",
      "Transfer-Encoding: identity\r\n",
      "Transfer-Encoding: \r\n",
      "Transfer-Encoding: gzip, chunked\r\n",
      "Transfer-Encoding: chunked, identity\r\n",
      "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
      "Content-Length: 2\r\nContent-Length: 2\r\n",
      "Content-Length: 2\r\nContent-Length: 3\r\n",
      "Content-Length: 2, 2\r\n",
      "Content-Length: +2\r\n",
      "Content-Length: 0x2\r\n",
      "Content-Length: \r\n",
      "Content-Length : 2\r\n",
      "Content-Length:\r\n 2\r\n",
      "Transfer-Encoding:\r\n\tchunked\r\n",
      "X-Other: a\r\n b\r\nContent-Length: 2\r\n",
  };
  std::vector<std::string> heads;
  for (const std::string& one : fields) heads.push_back(post + " HTTP/1.1" + host + one);
  heads.push_back(post + " HTTP/1.0" + host + "Transfer-Encoding: chunked\r\n");
  for (const std::string& head : heads) {
    HttpClient client(server.port());
    client.send(head + "\r\n{}GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const HttpReply reply = client.receive();
    INFO(head);
    CHECK(reply.status == 400);
    CHECK(code_of(reply) == "malformed_request");
    CHECK(reply.field("connection") == "close");
    CHECK(client.rest().empty());
  }
  CHECK(server.ask("POST", kChat, chat_body("team")).status == 200);
}

TEST_CASE("chunk extensions and trailers have a limit, as a header has that comes in pieces") {
  ServeOptions options;
  options.max_header_bytes = 1000;
  const RunningServer server(options);
  const std::string head = "POST " + std::string(kChat) +
                           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           "Transfer-Encoding: chunked\r\n\r\n";
  std::string many;
  for (int i = 0; i < 30; ++i) many += "1;a=" + std::string(100, 'b') + "\r\n{\r\n";
  for (const std::string& body : {"1;" + std::string(20'000, 'a'), "0\r\nA: " + std::string(20'000, 'a'), many}) {
    HttpClient client(server.port());
    client.send(head + body);
    const HttpReply reply = client.receive();
    INFO(body.substr(0, 20));
    CHECK(reply.status == 400);
    CHECK(code_of(reply) == "malformed_request");
    CHECK(reply.field("connection") == "close");
  }
  const std::string body = chat_body("team");
  HttpClient fine(server.port());
  std::ostringstream size;
  size << std::hex << body.size();
  fine.send(head + size.str() + ";a=b\r\n" + body + "\r\n0\r\nX-Trailer: a\r\n\r\n");
  CHECK(fine.receive().status == 200);

  HttpClient pieces(server.port());
  pieces.send("GET /health HTTP/1.1\r\nHost: localhost\r\n");
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(10ms);
    pieces.send("A: " + std::string(100, 'a') + "\r\n");
  }
  pieces.send("\r\n");
  CHECK(pieces.receive().status == 431);
}

TEST_CASE("requests with random changes get an answer, a status of 4xx or a closed connection, never one of 5xx") {
  const RunningServer server;
  std::mt19937 random(7);
  const auto below = [&](std::size_t count) { return random() % count; };
  const std::vector<std::string> requests = {
      HttpClient::request("POST", kChat, chat_body("team", {{"stream", true}, {"baton", {{"events", true}}}})),
      HttpClient::request("POST", "/v1/completions", R"({"model": "team", "prompt": "x", "seed": 3})"),
      HttpClient::request("GET", "/v1/models/team", "", "Origin: http://127.0.0.1\r\nAuthorization: Bearer x\r\n")};
  const std::vector<std::string> pieces = {"\r\n", "\0", "{", "[[", "\"", ": ", "chunked", "-1", "99999999999999999999",
                                           "\xff"};
  std::map<int, int> statuses;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = requests[below(requests.size())];
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(bytes.size());
      const std::size_t length = below(8);
      if (below(2) == 0)
        bytes.replace(at, length, pieces[below(pieces.size())]);
      else
        bytes[at] = static_cast<char>(random());
    }
    HttpClient client(server.port());
    client.send(bytes);
    client.end_sending();
    const int status = client.receive().status;
    INFO(bytes);
    CHECK((status == 0 || status == 200 || (status >= 400 && status < 500)));
    ++statuses[status / 100];
  }
  CHECK(statuses[4] > 50);
  CHECK(server.ask("GET", "/health").status == 200);
  CHECK(server.comes_to("baton_requests_running", 0));
}

TEST_CASE("bodies that are wrong are refused with the field that is wrong") {
  const RunningServer server;
  const json message = {{"role", "user"}, {"content", "x"}};
  const auto chat = [&](json changes) {
    json body = {{"model", "team"}, {"messages", {message}}};
    body.merge_patch(changes);
    return body.dump();
  };
  const std::vector<std::tuple<std::string, int, std::string>> bodies = {
      {"{", 400, ""},
      {"[]", 400, ""},
      {"\"\\ud800\"", 400, ""},
      {"{\"model\": \"team\", \"messages\": [" + std::string(2000, '[') + "]}", 400, ""},
      {chat({{"model", nullptr}}), 400, "model"},
      {chat({{"model", 7}}), 400, "model"},
      {chat({{"model", "../team"}}), 404, "model"},
      {chat({{"messages", nullptr}}), 400, "messages"},
      {chat({{"messages", json::array()}}), 400, "messages"},
      {chat({{"messages", {7}}}), 400, "messages[0]"},
      {chat({{"messages", {{{"role", "tool"}, {"content", "x"}}}}}), 400, "messages[0].role"},
      {chat({{"messages", {message, {{"role", "assistant"}, {"content", "x"}}}}}), 400, "messages[1].role"},
      {chat({{"messages", {{{"role", "user"}}}}}), 400, "messages[0]"},
      {chat({{"messages", {{{"role", "user"}, {"content", {{{"type", "image_url"}}}}}}}}), 400, "messages[0].content"},
      {chat({{"stream", "yes"}}), 400, "stream"},
      {chat({{"n", 2}}), 400, "n"},
      {chat({{"tools", {{{"type", "function"}}}}}), 400, "tools"},
      {chat({{"response_format", {{"type", "json_object"}}}}), 400, "response_format"},
      {chat({{"seed", 1.5}}), 400, "seed"},
      {chat({{"baton", {{"events", true}}}}), 400, "baton.events"},
      {chat({{"baton", {{"file", "/etc/passwd"}}}}), 400, "baton"},
      {chat({{"baton", {{"inputs", {{"question", "x"}}}}}}), 400, "baton.inputs.question"},
      {chat({{"baton", {{"inputs", {{"other", "x"}}}}}}), 400, "baton.inputs"},
  };
  for (const auto& [body, status, param] : bodies) {
    const HttpReply reply = server.ask("POST", kChat, body);
    INFO(body.substr(0, 200) << "\n" << reply.body);
    CHECK(reply.status == status);
    const json error = json::parse(reply.body)["error"];
    CHECK(error["param"] == (param.empty() ? json(nullptr) : json(param)));
    CHECK(error["type"] == "invalid_request_error");
    CHECK(!error["message"].get<std::string>().empty());
  }
  const json fine = {{"n", 1}, {"tools", json::array()}, {"temperature", 0.3}, {"max_tokens", 4}, {"stop", nullptr}};
  CHECK(server.ask("POST", kChat, chat(fine)).status == 200);
}

TEST_CASE("a body over the limit is refused before it is read, by its length or at the chunk that exceeds it") {
  ServeOptions options;
  options.max_body_bytes = 1000;
  const RunningServer server(options);
  HttpClient announced(server.port());
  announced.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 1001\r\n\r\n");  // and nothing of it
  const HttpReply refused = announced.receive();
  CHECK(refused.status == 413);
  CHECK(refused.field("connection") == "close");
  HttpClient expecting(server.port());
  expecting.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n");
  CHECK(expecting.receive().status == 413);
  HttpClient chunked(server.port());
  chunked.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n10\r\n{\"model\": \"team\"\r\nffffff\r\n");
  CHECK(chunked.receive().status == 413);
  CHECK(server.ask("GET", "/health", "{}").status == 413);
  CHECK(server.ask("POST", kChat, chat_body("team")).status == 200);
}

TEST_CASE("a client that waits for the server's consent sends its body then") {
  const RunningServer server;
  HttpClient client(server.port());
  const std::string body = chat_body("team");
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: " +
      std::to_string(body.size()) + "\r\n\r\n");
  CHECK(client.receive().status == 100);
  client.send(body);
  CHECK(client.receive().status == 200);
}

TEST_CASE("clients that send a header or a body too slowly are let go") {
  ServeOptions options;
  options.header_timeout = 300ms;
  options.body_timeout = 300ms;
  const RunningServer server(options);
  HttpClient silent(server.port()), slow(server.port()), stuck(server.port());
  slow.send("GET / HTTP/1.1\r\nHo");
  stuck.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: 100\r\n\r\n{");
  CHECK(silent.is_closed_within(10s));
  CHECK(slow.is_closed_within(10s));
  CHECK(stuck.is_closed_within(10s));
  CHECK(server.comes_to("baton_connections", 1));  // the one that asks
}

TEST_CASE("a client that reads nothing of a stream is let go, and its run ends") {
  ServeOptions options;
  options.write_timeout = 500ms;
  const RunningServer server(options);
  HttpClient client(server.port());
  client.send(HttpClient::request("POST", kChat, chat_body("slow", {{"stream", true}, {"baton", {{"events", true}}}})));
  REQUIRE(server.comes_to("baton_requests_running", 1));
  // Until the buffers of both sides are full, which takes megabytes, or the run has ended.
  for (int i = 0; i < 3000 && server.metric("baton_requests_running") == 1; ++i) std::this_thread::sleep_for(20ms);
  CHECK(server.metric("baton_requests_running") == 0);
}

TEST_CASE("a client that goes ends its run, streamed or not, running or waiting") {
  ServeOptions options;
  options.max_running = 2;
  const RunningServer server(options);
  {
    SlowClient streaming(server), whole(server, false);
    REQUIRE(streaming.started);
    REQUIRE(server.comes_to("baton_requests_running", 2));
    SlowClient waiting(server, false);
    REQUIRE(server.comes_to("baton_requests_waiting", 1));
  }
  CHECK(server.comes_to("baton_requests_running", 0));
  CHECK(server.comes_to("baton_requests_waiting", 0));
  CHECK(server.metric(R"(baton_requests_total{path="/v1/chat/completions",model="slow",status="499"})") == 3);
  CHECK(server.ask("POST", kChat, chat_body("team")).status == 200);
}

TEST_CASE("more requests than may wait are refused with a time to try again, before their bodies are read") {
  ServeOptions options;
  options.max_running = 1;
  options.max_waiting = 1;
  const RunningServer server(options);
  const SlowClient running(server), waiting(server, false);
  REQUIRE(server.comes_to("baton_requests_waiting", 1));
  const HttpReply refused = server.ask("POST", kChat, chat_body("team"));
  CHECK(refused.status == 503);
  CHECK(code_of(refused) == "overloaded");
  CHECK(refused.field("retry-after") == "1");
  CHECK(server.ask("GET", "/health").status == 200);
}

TEST_CASE("a client over its rate is refused with a time to try again, and other paths are free") {
  ServeOptions options;
  options.requests_per_minute = 2;
  const RunningServer server(options);
  CHECK(server.ask("POST", kChat, chat_body("team")).status == 200);
  CHECK(server.ask("POST", kChat, "{}").status == 400);
  const HttpReply refused = server.ask("POST", kChat, chat_body("team"));
  CHECK(refused.status == 429);
  CHECK(code_of(refused) == "rate_limit_exceeded");
  CHECK(std::stoi(refused.field("retry-after")) > 0);
  CHECK(server.ask("GET", "/v1/models").status == 200);
}

TEST_CASE("more connections than allowed wait until one ends") {
  ServeOptions options;
  options.max_connections = 2;
  const RunningServer server(options);
  auto first = std::make_unique<HttpClient>(server.port());
  HttpClient second(server.port()), third(server.port());
  CHECK(first->ask("GET", "/health").status == 200);
  CHECK(second.ask("GET", "/health").status == 200);
  third.send(HttpClient::request("GET", "/health"));
  std::this_thread::sleep_for(200ms);
  first.reset();
  CHECK(third.receive().status == 200);
}

TEST_CASE("a run that takes too long ends with a timeout, as a status or inside the stream") {
  ServeOptions options;
  options.run_timeout = 300ms;
  const RunningServer server(options);
  const HttpReply whole = server.ask("POST", kChat, chat_body("slow"));
  CHECK(whole.status == 504);
  CHECK(code_of(whole) == "timeout");
  const HttpReply streamed = server.ask("POST", kChat, chat_body("slow", {{"stream", true}}));
  CHECK(streamed.status == 200);
  const json last = json::parse(baton::test::events_of(streamed.body).back());
  CHECK(last["error"]["code"] == "timeout");
}

}  // namespace hostile_clients_test
