// SPDX-License-Identifier: Apache-2.0
// Sending traces, to collectors that the test itself is.
#include "sdk/trace/trace_target.h"

#include <baton/errors.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "sdk/trace/spans.h"
#include "tests/support/http_server.h"
#include "tests/support/temp_folder.h"

namespace collector_test {

namespace {

using namespace baton;
using namespace std::chrono_literals;
using test::HttpAnswer;
using test::HttpAsked;
using test::HttpServer;

using Variables = std::vector<std::pair<const char*, const char*>>;

/// Sets variables of the environment for one test, and all others of OpenTelemetry to nothing.
class Environment {
 public:
  explicit Environment(const Variables& values) {
    for (const char* name :
         {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS",
          "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
          "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"})
      ::unsetenv(name);
    for (const auto& [name, value] : values) ::setenv(name, value, 1);
    names_ = values;
  }
  ~Environment() {
    for (const auto& [name, value] : names_) ::unsetenv(name);
  }

 private:
  Variables names_;
};

RunTrace small_trace() {
  RunRecord record;
  record.workflow = "team";
  return spans_of(record, {});
}

CollectorSettings settings_for(const HttpServer& server, std::chrono::milliseconds timeout = 5s) {
  CollectorSettings settings;
  settings.url = server.address() + "/v1/traces";
  settings.timeout = timeout;
  return settings;
}

template <typename Call>
double seconds_of(Call call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("traces: a collector gets the path, the headers and the body") {
  std::mutex mutex;
  HttpAsked seen;
  const HttpServer server([&](const HttpAsked& asked, HttpAnswer& answer) {
    const std::lock_guard lock(mutex);
    seen = asked;
    answer.whole(200, "{\"partialSuccess\":{}}");
  });
  const Environment environment(
      Variables{{"OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc, x-team = a%2Cb"}});
  const std::string body = otlp_json(small_trace(), resource_attributes());
  CHECK(send_trace(collector_settings(server.address()), body) == "");
  const std::lock_guard lock(mutex);
  CHECK(seen.method == "POST");
  CHECK(seen.path == "/v1/traces");
  CHECK(seen.body == body);
  CHECK(seen.headers["content-type"] == "application/json");
  CHECK(seen.headers["authorization"] == "Bearer abc");
  CHECK(seen.headers["x-team"] == "a,b");
  CHECK(seen.headers["user-agent"].starts_with("baton/"));
  CHECK(seen.headers.count("expect") == 0);
}

TEST_CASE("traces: a collector that is busy is asked again, as it says, and one that refuses is not") {
  std::atomic<int> asked_times = 0;
  int status = 503;
  const HttpServer server([&](const HttpAsked&, HttpAnswer& answer) {
    if (++asked_times < 3) {
      answer.whole(status, "{}", asked_times == 1 ? "Retry-After: 0.1\r\n" : "");
    } else {
      answer.whole(200, "");
    }
  });
  CHECK(send_trace(settings_for(server), "{}") == "");
  CHECK(asked_times == 3);
  for (const int refusal : {400, 401, 404, 500, 501}) {
    asked_times = 0;
    status = refusal;
    CHECK(send_trace(settings_for(server), "{}").find(std::to_string(refusal)) != std::string::npos);
    CHECK(asked_times == 1);
  }
}

TEST_CASE("traces: a pause that a collector asks for does not outlast the time there is") {
  std::atomic<int> asked_times = 0;
  const HttpServer server([&](const HttpAsked&, HttpAnswer& answer) {
    ++asked_times;
    answer.whole(429, "{}", "Retry-After: 60\r\n");
  });
  std::string problem;
  CHECK(seconds_of([&] { problem = send_trace(settings_for(server), "{}"); }) < 4);
  CHECK(problem.find("429") != std::string::npos);
  CHECK(asked_times == 1);
}

TEST_CASE("traces: no collector, one that says nothing and one that goes away are told of in time") {
  std::uint16_t free_port = 0;
  {
    const HttpServer gone([](const HttpAsked&, HttpAnswer&) {});
    free_port = gone.port();
  }
  CollectorSettings nobody;
  nobody.url = "http://user:password@127.0.0.1:" + std::to_string(free_port) + "/v1/traces?key=secret";
  nobody.timeout = 2s;
  std::string problem;
  CHECK(seconds_of([&] { problem = send_trace(nobody, "{}"); }) < 20);
  CHECK(problem.find("127.0.0.1") != std::string::npos);
  CHECK(problem.find("secret") == std::string::npos);
  CHECK(problem.find("password") == std::string::npos);

  std::atomic<bool> over = false;
  const HttpServer silent([&](const HttpAsked&, HttpAnswer& answer) {
    while (!over && !answer.closed()) std::this_thread::sleep_for(10ms);
    answer.cut();
  });
  CHECK(seconds_of([&] { problem = send_trace(settings_for(silent, 1s), "{}"); }) < 20);
  CHECK(problem.find("no complete answer") != std::string::npos);
  over = true;

  const HttpServer cutting([](const HttpAsked&, HttpAnswer& answer) { answer.cut(); });
  CHECK(send_trace(settings_for(cutting, 1s), "{}") != "");
}

TEST_CASE("traces: what a collector says is not trusted") {
  std::string reply;
  std::string headers;
  int status = 200;
  std::atomic<int> elsewhere = 0;
  const HttpServer other([&](const HttpAsked&, HttpAnswer& answer) {
    ++elsewhere;
    answer.whole(200, "{}");
  });
  const HttpServer server([&](const HttpAsked&, HttpAnswer& answer) { answer.whole(status, reply, headers); });
  const auto said = [&](std::string text) {
    reply = std::move(text);
    return send_trace(settings_for(server), "{}");
  };
  CHECK(said("") == "");
  CHECK(said("not JSON") == "");
  CHECK(said("[1, 2]") == "");
  CHECK(said("{\"partialSuccess\": 7}") == "");
  CHECK(said("{\"partialSuccess\": {\"rejectedSpans\": \"0\", \"errorMessage\": \"a warning\"}}") == "");
  CHECK(said(std::string(100'000, '[')) == "");
  CHECK(said("{\"partialSuccess\": {\"rejectedSpans\": \"3\", \"errorMessage\": \"too many\"}}") ==
        "it rejected 3 spans: too many");
  CHECK(said("{\"partialSuccess\": {\"rejectedSpans\": 3}}") == "it rejected 3 spans: it does not say why");
  CHECK(said(std::string(2 << 20, ' ')).find("more than 1 MiB") != std::string::npos);
  status = 307;
  headers = "Location: " + other.address() + "/v1/traces\r\n";
  CHECK(said("").find("307") != std::string::npos);
  CHECK(elsewhere == 0);
}

TEST_CASE("traces: the environment of OpenTelemetry is read as its programs read it") {
  const auto url_with = [](const Variables& values, const std::string& address) {
    const Environment environment(values);
    return collector_settings(address).url;
  };
  CHECK(url_with({}, "") == "http://localhost:4318/v1/traces");
  CHECK(url_with({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://host/base/"}}, "") == "https://host/base/v1/traces");
  CHECK(url_with({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://host"},
                  {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://host/exactly"}},
                 "") == "https://host/exactly");
  CHECK(url_with({{"OTEL_EXPORTER_OTLP_ENDPOINT", "https://host"}}, "http://a:1") == "http://a:1/v1/traces");
  CHECK(url_with({}, "http://a:1/") == "http://a:1/v1/traces");
  CHECK(url_with({}, "http://a:1/in/put") == "http://a:1/in/put");

  const auto refused = [](const char* name, const char* value) {
    const Environment environment(Variables{{name, value}});
    try {
      collector_settings("");
      resource_attributes();
    } catch (const InputError& error) {
      const std::string text = error.what();
      CHECK(text.find("sesame") == std::string::npos);
      return text.find(name) != std::string::npos || text.find("http") != std::string::npos;
    }
    return false;
  };
  CHECK(refused("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://host"));
  CHECK(refused("OTEL_EXPORTER_OTLP_HEADERS", "sesame"));
  CHECK(refused("OTEL_EXPORTER_OTLP_HEADERS", "=sesame"));
  CHECK(refused("OTEL_EXPORTER_OTLP_HEADERS", "key=sesame%0d%0aHost: evil"));
  CHECK(refused("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"));
  CHECK(refused("OTEL_EXPORTER_OTLP_TIMEOUT", "0"));
  CHECK(refused("OTEL_RESOURCE_ATTRIBUTES", "sesame"));
  const Environment environment(
      Variables{{"OTEL_EXPORTER_OTLP_TIMEOUT", "1500"},
                {"OTEL_SERVICE_NAME", "sums"},
                {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=a%20b"}});
  CHECK(collector_settings("").timeout == 1500ms);
  CHECK(resource_attributes() ==
        std::map<std::string, std::string>{{"deployment.environment", "a b"}, {"service.name", "sums"}});
}

TEST_CASE("traces: a file gets a line for each trace, and a file for a viewer is replaced") {
  const Environment environment(Variables{});
  const test::TempFolder folder;
  const auto size_after = [&](const std::string& name, int times) {
    const TraceTarget target((folder.path() / name).string());
    CHECK(target.is_file());
    for (int i = 0; i < times; ++i) CHECK(target.write(small_trace()) == "");
    return std::filesystem::file_size(folder.path() / name);
  };
  CHECK(size_after("lines.json", 2) == 2 * size_after("line.json", 1));
  CHECK(size_after("a.perfetto.json", 2) == size_after("b.perfetto.json", 1));
  CHECK_THROWS_AS(TraceTarget((folder.path() / "none/a.json").string()), InputError);
  CHECK_THROWS_AS(TraceTarget(""), InputError);
  CHECK(TraceTarget("/dev/full").write(small_trace()).find("/dev/full") != std::string::npos);
}

TEST_CASE("traces: many runs are followed without waiting for a collector, which is told of once") {
  const Environment environment(Variables{{"OTEL_EXPORTER_OTLP_TIMEOUT", "3000"}});
  std::atomic<bool> open = false;
  std::atomic<int> taken = 0;
  const HttpServer server([&](const HttpAsked&, HttpAnswer& answer) {
    if (open) ++taken;
    answer.whole(open ? 200 : 400, "{}");
  });
  std::mutex mutex;
  std::vector<std::string> log;
  const auto logged = [&] {
    const std::lock_guard lock(mutex);
    return log;
  };
  {
    TraceQueue queue(TraceTarget(server.address()), [&](const std::string& line) {
      const std::lock_guard lock(mutex);
      log.push_back(line);
    });
    const auto run = [&] {
      const EventCallback events = queue.follow();
      events(RunStarted{"team", 0});
      events(RunFinished{});
    };
    run();
    while (logged().empty()) std::this_thread::sleep_for(1ms);
    run();
    while (server.connections() < 2) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);
    open = true;
    for (int i = 0; i < 20; ++i) run();
  }  // which writes what is queued
  CHECK(taken == 20);
  REQUIRE(log.size() == 2);
  CHECK(log[0].find("warning: a trace is lost") == 0);
  CHECK(log[1].find("traces are written again") == 0);
}

}  // namespace collector_test
