// SPDX-License-Identifier: Apache-2.0
// Who may use a server: keys, pages of other sites, addresses of other machines.
#include <catch2/catch.hpp>

#include "sdk/serve/admission.h"
#include "sdk/serve/chat_request.h"
#include "tests/sdk/serve/running_server.h"

namespace keys_and_sites_test {

namespace {

using baton::serve::ApiKeys;
using baton::serve::ServeOptions;
using baton::test::chat_body;
using baton::test::HttpClient;
using baton::test::HttpReply;
using baton::test::RunningServer;

const std::string kKey = "a-key-of-24-characters-1";

ServeOptions with_key() {
  ServeOptions options;
  options.keys = {kKey, "another-key"};
  return options;
}

}  // namespace

TEST_CASE("where there are keys no path answers without one, be it known or not, and no body is read") {
  const RunningServer server(with_key());
  for (const char* path : {"/", "/health", "/metrics", "/v1/models", "/v1/models/team", "/other", "/v1/other"}) {
    INFO(path);
    const HttpReply reply = server.ask("GET", path);
    CHECK(reply.status == 401);
    CHECK(reply.body.find("invalid_api_key") != std::string::npos);
    CHECK(reply.body.find(kKey) == std::string::npos);
  }
  for (const std::string wrong :
       {"Bearer ", "Bearer a-key-of-24-characters-2", "Bearer a-key-of-24-characters-",
        "Bearer a-key-of-24-characters-11", "Basic !!!!", "Basic", "Digest a-key", "another-key"})
    CHECK(server.ask("POST", "/v1/chat/completions", chat_body("team"), "Authorization: " + wrong + "\r\n").status ==
          401);
  HttpClient client(server.port());
  client.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 500\r\n\r\n");  // and nothing of it
  CHECK(client.receive().status == 401);
  for (const std::string& line : server.log()) CHECK(line.find("a-key") == std::string::npos);
}

TEST_CASE("each key is taken as a bearer's or as a password, as a browser sends it when it was asked") {
  const RunningServer server(with_key());
  const std::vector<std::string> values = {"Bearer " + kKey, "bearer  another-key", "Basic dXNlcjphbm90aGVyLWtleQ=="};
  for (const std::string& right : values)
    CHECK(server.ask("GET", "/v1/models", "", "Authorization: " + right + "\r\n").status == 200);
  CHECK(server.ask("GET", "/").field("www-authenticate").starts_with("Basic"));
  CHECK(server.ask("GET", "/v1/models").field("www-authenticate").starts_with("Bearer"));
  const std::string key = "Authorization: Bearer " + kKey + "\r\n";
  CHECK(server.ask("POST", "/v1/chat/completions", chat_body("team"), key).status == 200);
  CHECK(server.comes_to("baton_requests_running", 0, key));
}

TEST_CASE("keys are compared as a whole, and unusable ones are refused without showing them") {
  CHECK(baton::serve::equal_in_constant_time("abc", "abc"));
  CHECK(baton::serve::equal_in_constant_time("", ""));
  CHECK_FALSE(baton::serve::equal_in_constant_time("abc", "abd"));
  CHECK_FALSE(baton::serve::equal_in_constant_time("abc", "ab"));
  CHECK_FALSE(baton::serve::equal_in_constant_time("", "a"));
  CHECK(ApiKeys({"first-key", "second-key"}).find("Bearer second-key") == 1);
  CHECK_FALSE(ApiKeys({"first-key"}).find("Bearer first-key ").has_value());
  CHECK_FALSE(ApiKeys({}).find("Bearer ").has_value());
  CHECK_THROWS_WITH(ApiKeys({"short"}), "key 1: expected at least 8 characters, found 5");
  CHECK_THROWS_WITH(ApiKeys({"long-enough", "with a blank"}),
                    "key 2: expected printable ASCII characters without blanks");
  CHECK(baton::serve::keys_of_text("# ours\n\n first-key \r\nsecond-key") ==
        std::vector<std::string>{"first-key", "second-key"});
}

TEST_CASE("an address of other machines needs a key, and the message says so") {
  ServeOptions options;
  for (const char* address : {"0.0.0.0", "::", "192.168.1.7"}) {
    options.address = address;
    CHECK_THROWS_AS(RunningServer(options), baton::InputError);
  }
  options.address = "0.0.0.0";
  options.keys = {kKey};
  const RunningServer server(options);
  CHECK(server.ask("GET", "/health", "", "Authorization: Bearer " + kKey + "\r\n").status == 200);
  CHECK(server.ask("GET", "/health").status == 401);
  options.address = "not an address";
  CHECK_THROWS_WITH(RunningServer(options), "address 'not an address': expected an IPv4 or IPv6 address, or localhost");
  CHECK(baton::serve::is_loopback("127.0.0.2"));
  CHECK(baton::serve::is_loopback("::1"));
  CHECK(baton::serve::is_loopback("localhost"));
}

TEST_CASE("a port that is taken is an error that names it") {
  const RunningServer server;
  ServeOptions options;
  options.port = server.port();
  CHECK_THROWS_AS(baton::serve::Server(baton::test::served_engine(), baton::test::two_served(), options),
                  baton::ResourceError);
}

TEST_CASE("pages of other sites cannot use a server without keys") {
  const RunningServer server;
  const auto status = [&](const std::string& fields, const std::string& type = "application/json") {
    HttpClient client(server.port());
    const std::string body = chat_body("team");
    client.send("POST /v1/chat/completions HTTP/1.1\r\nContent-Type: " + type + "\r\n" + fields +
                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return client.receive().status;
  };
  CHECK(status("Host: localhost:8080\r\n") == 200);
  CHECK(status("Host: [::1]:8080\r\n") == 200);
  CHECK(status("Host: localhost:8080\r\nOrigin: http://localhost:8080\r\n") == 200);
  CHECK(status("Host: localhost:8080\r\nOrigin: https://elsewhere.example\r\n") == 403);
  CHECK(status("Host: localhost:8080\r\nOrigin: null\r\n") == 403);
  CHECK(status("Host: localhost:8080\r\nOrigin: http://localhost:9090\r\n") == 403);
  CHECK(status("Host: elsewhere.example:8080\r\n") == 403);  // a name of theirs that leads to this machine
  CHECK(status("Host: 127.0.0.1.elsewhere.example\r\n") == 403);
  CHECK(status("Host: localhost\r\n", "text/plain") == 415);  // as a form sends it
  CHECK(status("Host: localhost\r\n", "application/x-www-form-urlencoded") == 415);
  CHECK(status("Host: localhost\r\n", "application/json; charset=utf-8") == 200);
  CHECK(status("Host: localhost\r\nContent-Encoding: gzip\r\n") == 415);
  CHECK(server.ask("GET", "/v1/models").fields.count("access-control-allow-origin") == 0);
  CHECK(server.ask("GET", "/").field("content-security-policy").starts_with("default-src 'none'"));
}

TEST_CASE("a rate is that of each client, and fills steadily") {
  using namespace std::chrono_literals;
  baton::serve::RateLimit limit(60);
  const auto begin = baton::serve::RateLimit::Clock::now();
  for (int i = 0; i < 60; ++i) CHECK(limit.wait_seconds("a", begin) == 0);
  CHECK(limit.wait_seconds("a", begin) == 1);
  CHECK(limit.wait_seconds("b", begin) == 0);
  CHECK(limit.wait_seconds("a", begin + 1001ms) == 0);
  CHECK(limit.wait_seconds("a", begin + 1001ms) == 1);
  CHECK(limit.wait_seconds("a", begin + 1h) == 0);
  CHECK(baton::serve::RateLimit(0).wait_seconds("a", begin) == 0);
}

}  // namespace keys_and_sites_test
