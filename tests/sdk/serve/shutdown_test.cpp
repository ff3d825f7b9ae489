// SPDX-License-Identifier: Apache-2.0
// How a server ends, and what it counts.
#include <catch2/catch.hpp>

#include <future>
#include <utility>
#include <variant>

#include "sdk/serve/metrics.h"
#include "sdk/serve/server_core.h"
#include "tests/sdk/serve/running_server.h"
#include "tests/support/process_threads.h"

namespace shutdown_test {

namespace {

using namespace std::chrono_literals;
using baton::serve::ServeOptions;
using baton::test::chat_body;
using baton::test::HttpClient;
using baton::test::HttpReply;
using baton::test::RunningServer;
using nlohmann::json;

const char* const kChat = "/v1/chat/completions";

}  // namespace

TEST_CASE("a server that is to stop accepts nothing new, and lets what runs come to its end") {
  ServeOptions options;
  std::promise<void> promise;
  options.follow_run = [held = promise.get_future().share()] {
    return [held](const baton::Event& event) {
      const auto* finished = std::get_if<baton::AgentFinished>(&event);
      if (finished != nullptr && finished->record.agent == "checker") held.wait();
    };
  };
  RunningServer server(options);
  std::promise<void> stopping = std::move(promise);  // until it is kept or destroyed, no run ends
  HttpClient streaming(server.port()), whole(server.port()), idle(server.port());
  CHECK(idle.ask("GET", "/health").status == 200);
  streaming.send(HttpClient::request("POST", kChat, chat_body("team", {{"stream", true}})));
  CHECK(streaming.receive_head().status == 200);
  whole.send(HttpClient::request("POST", kChat, chat_body("team")));
  REQUIRE(server.comes_to("baton_requests_running", 2));
  server.request_stop();
  CHECK(idle.is_closed_within(10s));
  CHECK_THROWS([&] { HttpClient(server.port()).ask("GET", "/health"); }());
  stopping.set_value();
  const HttpReply reply = whole.receive();
  CHECK(reply.status == 200);
  CHECK(reply.field("connection") == "close");
  std::string stream;
  for (std::string chunk = streaming.next_chunk(); !chunk.empty(); chunk = streaming.next_chunk()) stream += chunk;
  CHECK(stream.ends_with("data: [DONE]\n\n"));
  server.end();
}

TEST_CASE("what still runs at the end of the time to stop is cancelled, and its client is told") {
  ServeOptions options;
  options.drain_timeout = 300ms;
  RunningServer server(options);
  HttpClient streaming(server.port()), whole(server.port());
  streaming.send(HttpClient::request("POST", kChat, chat_body("slow", {{"stream", true}})));
  CHECK(streaming.receive_head().status == 200);
  whole.send(HttpClient::request("POST", kChat, chat_body("slow")));
  REQUIRE(server.comes_to("baton_requests_running", 2));
  const auto begin = std::chrono::steady_clock::now();
  server.end();
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  const HttpReply reply = whole.receive();
  CHECK(reply.status == 503);
  CHECK(json::parse(reply.body)["error"]["code"] == "cancelled");
  CHECK(streaming.rest().find("\"cancelled\"") != std::string::npos);
}

TEST_CASE("a server leaves no thread behind") {
  static_cast<void>(baton::test::served_engine().run(baton::test::served_team(4), {.inputs = {{"question", "x"}}}));
  const auto before = baton::test::threads_of_process();
  {
    const RunningServer server;
    CHECK(server.ask("POST", kChat, chat_body("team")).status == 200);
  }
  CHECK(baton::test::threads_end(before));
}

TEST_CASE("metrics are the sums of what the server did, in Prometheus' text format") {
  const RunningServer server;
  const json body = json::parse(server.ask("POST", kChat, chat_body("team")).body);
  server.ask("POST", kChat, "{");
  server.ask("GET", "/nothing");
  const HttpReply reply = server.ask("GET", "/metrics");
  CHECK(reply.field("content-type") == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(server.metric(R"(baton_requests_total{path="/v1/chat/completions",model="team",status="200"})") == 1);
  CHECK(server.metric(R"(baton_requests_total{path="/v1/chat/completions",model="",status="400"})") == 1);
  CHECK(server.metric(R"(baton_requests_total{path="other",model="",status="404"})") == 1);
  CHECK(server.metric(R"(baton_prompt_tokens_total{model="team"})") == body["usage"]["prompt_tokens"]);
  CHECK(server.metric(R"(baton_completion_tokens_total{model="team"})") == body["usage"]["completion_tokens"]);
  CHECK(server.metric(R"(baton_relayed_tokens_total{model="team"})") ==
        body["usage"]["prompt_tokens_details"]["cached_tokens"]);
  CHECK(server.metric(R"(baton_time_to_first_token_seconds_bucket{model="team",le="+Inf"})") == 1);
  CHECK(server.metric(R"(baton_time_to_first_token_seconds_sum{model="team"})") > 0);
  CHECK(server.metric("baton_connections") == 1);
}

TEST_CASE("a histogram's buckets hold all smaller values") {
  baton::serve::Metrics metrics;
  for (const double seconds : {0.02, 0.02, 3.0, 100.0}) metrics.count_first_token("w", seconds);
  const std::string text = metrics.text({1, 2, 3});
  for (const char* line : {"_bucket{model=\"w\",le=\"0.01\"} 0\n", "_bucket{model=\"w\",le=\"0.025\"} 2\n",
                           "_bucket{model=\"w\",le=\"2.5\"} 2\n", "_bucket{model=\"w\",le=\"5\"} 3\n",
                           "_bucket{model=\"w\",le=\"60\"} 3\n", "_bucket{model=\"w\",le=\"+Inf\"} 4\n",
                           "baton_requests_running 1\n", "baton_requests_waiting 2\n", "baton_connections 3\n"})
    CHECK(text.find(line) != std::string::npos);
}

TEST_CASE("relayed tokens are the whole tokens of the reused fraction of the KV") {
  baton::RunRecord record;
  baton::AgentRecord agent;
  agent.prompt_tokens = 10;
  agent.output_tokens = 3;
  agent.kv.entries = 40;
  agent.kv.reused = 23;
  agent.kv.ahead = 8;
  record.agents = {agent, agent, {}};
  const baton::serve::TokenCounts tokens = baton::serve::tokens_of(record);
  CHECK(tokens.prompt == 20);
  CHECK(tokens.completion == 6);
  CHECK(tokens.relayed == 10);
  CHECK(tokens.ahead == 4);
}

TEST_CASE("the page is one file that takes nothing from elsewhere") {
  const RunningServer server;
  const HttpReply reply = server.ask("GET", "/");
  CHECK(reply.status == 200);
  CHECK(reply.body == baton::serve::page());
  for (const char* elsewhere : {"http://", "https://", "src=", "@import", "url(", "innerHTML"})
    CHECK(reply.body.find(elsewhere) == std::string::npos);
  HttpClient client(server.port());
  client.send(HttpClient::request("HEAD", "/") + HttpClient::request("GET", "/health"));
  const HttpReply head = client.receive_head();
  CHECK(head.field("content-length") == std::to_string(baton::serve::page().size()));
  CHECK(client.receive().body == R"({"status":"ok"})");
}

}  // namespace shutdown_test
