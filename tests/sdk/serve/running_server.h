// SPDX-License-Identifier: Apache-2.0
// A server on loopback in the test's own process, over the shipped nano model.
#pragma once

#include <baton/baton.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sdk/serve/server.h"
#include "tests/sdk/serve/http_client.h"
#include "tests/support/folders.h"
#include "tests/support/thread_time.h"

namespace baton::test {

inline const std::string kServedQuestion = "Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?";

inline Engine& served_engine() {
  static Engine shared =
      Engine::open({.model = (source_folder() / "samples/models/nano").string(), .device = "cpu", .threads = 1});
  return shared;
}

/// A chain of two agents of at most `tokens` tokens each, in `rounds` rounds.
inline Workflow served_team(int tokens, int rounds = 1, const std::string& more = "") {
  return Workflow::parse(R"(
version: 1
name: pair
inputs: {question: {type: string, required: true}}
models: {main: {path: nano}}
defaults: {max_tokens: )" +
                         std::to_string(tokens) +
                         R"(}
agents:
  solver: {role: Solver, prompt: {system: You are a math expert., user: "Question:\n{{ question }}"}}
  checker: {role: Checker, prompt: {user: "Question:\n{{ question }}\n\nSolver:\n{{ agent_solver_current }}"})" +
                         more + R"(}
workflow: {topology: chain, agents: [solver, checker], rounds: )" +
                         std::to_string(rounds) + R"(}
outputs: {answer: "{{ agent_checker_current }}"}
)");
}

/// Long enough to be caught in the middle.
inline Workflow slow_served_team() { return served_team(200, 100); }

inline serve::ServedWorkflows one_served(const Workflow& workflow, const std::string& name = "team") {
  serve::ServedWorkflows workflows;
  workflows.add(serve::serve_workflow(name, workflow));
  return workflows;
}

/// Two workflows: "team", which ends soon, and "slow".
inline serve::ServedWorkflows two_served() {
  serve::ServedWorkflows workflows;
  workflows.add(serve::serve_workflow("team", served_team(24)));
  workflows.add(serve::serve_workflow("slow", slow_served_team()));
  return workflows;
}

/// These, and the plain model "nano".
inline serve::ServedWorkflows plain_served() {
  serve::ServedWorkflows served = two_served();
  served.add(serve::serve_model("nano", (source_folder() / "samples/models/nano").string()));
  return served;
}

/// The body of a chat completion.
inline std::string chat_body(const std::string& model, const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json body = {{"model", model}, {"messages", {{{"role", "user"}, {"content", kServedQuestion}}}}};
  body.update(more);
  return body.dump();
}

class RunningServer {
 public:
  explicit RunningServer(serve::ServeOptions options = {}, serve::ServedWorkflows workflows = two_served())
      : server_(served_engine(), std::move(workflows), with_log(std::move(options))),
        thread_([this] { server_.serve(stop_.get_token()); }) {}
  ~RunningServer() { end(); }

  int port() const { return server_.port(); }
  void request_stop() { stop_.request_stop(); }
  /// Waits until the server has ended.
  void end() {
    stop_.request_stop();
    if (thread_.joinable()) thread_.join();
  }

  HttpReply ask(const std::string& method, const std::string& target, const std::string& body = "",
                const std::string& more = "") const {
    return HttpClient(port()).ask(method, target, body, more);
  }

  /// The value of a sample of /metrics, -1 where it has none.
  double metric(const std::string& sample, const std::string& more = "") const {
    const std::string text = "\n" + ask("GET", "/metrics", "", more).body;
    const std::size_t at = text.find("\n" + sample + " ");
    return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + sample.size() + 2, nullptr);
  }
  /// True where the sample comes to have the value within ten seconds, longer where programs are slower.
  bool comes_to(const std::string& sample, double value, const std::string& more = "") const {
    for (int i = 0; i < 500 * kSlowdown; ++i) {
      if (metric(sample, more) == value) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  }

  std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }

 private:
  serve::ServeOptions with_log(serve::ServeOptions options) {
    options.port = 0;
    options.on_log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_.push_back(line);
    };
    return options;
  }

  mutable std::mutex mutex_;
  std::vector<std::string> log_;
  serve::Server server_;
  std::stop_source stop_;
  std::thread thread_;
};

}  // namespace baton::test
