// SPDX-License-Identifier: Apache-2.0
// Memory runs out around a request to a server: the request ends once, and the engine closes.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>

#include "engine/remote/open_server.h"
#include "tests/engine/remote/asking.h"
#include "tests/engine/remote/llama_server.h"
#include "tests/exhaustion/faults.h"
#include "tests/support/thread_time.h"

namespace remote_engine_test {

using namespace baton;
using namespace baton::test;
using namespace std::chrono_literals;

namespace {

/// A llama-server in a process of its own, which the faults do not reach.
class ForkedLlamaServer {
 public:
  ForkedLlamaServer() {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("no process");
    if (process_ == 0) serve(ends[1]);
    const bool told = ::read(ends[0], &port_, sizeof port_) == sizeof port_;
    ::close(ends[0]);
    ::close(ends[1]);
    if (!told) throw std::runtime_error("the server did not start");
  }
  ~ForkedLlamaServer() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  ForkedLlamaServer(const ForkedLlamaServer&) = delete;
  ForkedLlamaServer& operator=(const ForkedLlamaServer&) = delete;

  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  [[noreturn]] static void serve(int out) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    LlamaServer server(2);
    server.script = [](const std::string& prompt) {
      return prompt == "long" ? LlamaServer::Script{.text = std::string(400, 'y'), .per_token = 1ms}
                              : LlamaServer::Script{};
    };
    const std::uint16_t port = server.port();
    if (::write(out, &port, sizeof port) != sizeof port) std::_Exit(1);
    while (true) ::pause();
  }

  pid_t process_ = 0;
  std::uint16_t port_ = 0;
};

struct Ends {
  std::atomic<int> count = 0;
  std::atomic<FinishReason> reason = FinishReason::eos;
};

GenerationRequest request_of(const InferenceEngine& engine, const std::string& prompt,
                             const std::shared_ptr<Ends>& ends) {
  GenerationRequest request = asking(engine, prompt);
  request.max_tokens = 1000;
  request.callbacks.on_token = [](TokenId, const std::string&) {};
  request.callbacks.on_finished = [ends](const GenerationResult& result) {
    ends->reason = result.reason;
    ++ends->count;
  };
  return request;
}

std::shared_ptr<InferenceEngine> open(const ForkedLlamaServer& server) {
  ServerModel model;
  model.address = {server.address(), {}};
  return open_server(model);
}

}  // namespace

TEST_CASE("an engine of a server ends its requests without any memory", "[exhaustion]") {
  const ForkedLlamaServer server;
  for (int i = 0; i < 20; ++i) {
    auto engine = open(server);
    const auto ends = std::make_shared<Ends>();
    engine->submit(request_of(*engine, "long", ends));
    std::this_thread::sleep_for(std::chrono::milliseconds(i));
    arm(Fault::allocation, 1, std::int64_t{1} << 40);
    engine.reset();
    disarm();
    CHECK(ends->count == 1);
    CHECK((ends->reason == FinishReason::cancelled || ends->reason == FinishReason::error));
  }
}

TEST_CASE("a request to a server ends once whichever allocation of it fails, and the next one is answered",
          "[exhaustion]") {
  const ForkedLlamaServer server;
  auto engine = open(server);
  const auto is_over = [](const Ends& ends) {
    for (int i = 0; i < 20'000 && ends.count == 0; ++i) std::this_thread::sleep_for(1ms);
    return ends.count == 1;
  };
  std::int64_t injected = 1;
  for (std::int64_t point = 1; injected > 0; point += nightly() ? 1 : 3) {
    INFO("allocation " << point);
    const auto ends = std::make_shared<Ends>();
    GenerationRequest request = request_of(*engine, "short", ends);
    request.max_tokens = 4;
    bool refused = false;
    arm(Fault::allocation, point);
    try {
      engine->submit(std::move(request));
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    const bool over = refused || is_over(*ends);
    injected = disarm();
    REQUIRE(over);
    const auto after = std::make_shared<Ends>();
    engine->submit(request_of(*engine, "short", after));
    REQUIRE(is_over(*after));
    CHECK(after->reason == FinishReason::eos);
  }
}

}  // namespace remote_engine_test
