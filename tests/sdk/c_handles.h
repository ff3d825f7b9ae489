// SPDX-License-Identifier: Apache-2.0
// Handles of the C interface that free themselves, and short ways to make them.
#pragma once

#include <baton/c.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "tests/support/folders.h"

namespace baton::test::c {

template <auto function>
struct Free {
  template <typename Handle>
  void operator()(Handle* handle) const {
    function(handle);
  }
};
using Engine = std::unique_ptr<baton_engine, Free<baton_engine_free>>;
using Error = std::unique_ptr<baton_error, Free<baton_error_free>>;
using Event = std::unique_ptr<baton_event, Free<baton_event_free>>;
using Run = std::unique_ptr<baton_run, Free<baton_run_free>>;
using Text = std::unique_ptr<char, Free<baton_string_free>>;
using Tools = std::unique_ptr<baton_tools, Free<baton_tools_free>>;
using Workflow = std::unique_ptr<baton_workflow, Free<baton_workflow_free>>;

/// What a call ended with. In a condition: whether it went well.
struct Outcome {
  baton_status status = BATON_OK;
  Error error;
  explicit operator bool() const { return status == BATON_OK; }
  std::string message() const { return baton_error_message(error.get()); }
};

/// outcome_of(function, arguments without the last...)
template <typename Function, typename... Arguments>
Outcome outcome_of(Function function, Arguments... arguments) {
  baton_error* error = reinterpret_cast<baton_error*>(0x1);  // never read: the call sets it
  Outcome outcome;
  outcome.status = function(arguments..., &error);
  outcome.error.reset(error);
  CHECK(baton_error_status(error) == (outcome.status < BATON_PENDING ? outcome.status : BATON_OK));
  return outcome;
}

inline std::string nano() { return (source_folder() / "samples/models/nano").string(); }

/// With the shipped model on one thread of the CPU, unless `options` say otherwise.
inline Engine open_engine(baton_engine_options options = {}) {
  const std::string model = nano();
  options.size = sizeof options;
  if (options.model == nullptr) options.model = model.c_str();
  if (options.device == nullptr) options.device = "cpu";
  if (options.threads == 0) options.threads = 1;
  baton_engine* engine = nullptr;
  const auto outcome = outcome_of(baton_engine_open, &engine, &options);
  INFO(outcome.message());
  REQUIRE(outcome);
  return Engine(engine);
}

inline Tools tools_with(const char* name, baton_tool_callback callback, void* user_data = nullptr) {
  baton_tools* tools = nullptr;
  REQUIRE(outcome_of(baton_tools_create, &tools));
  REQUIRE(outcome_of(baton_tools_add, tools, name, callback, user_data));
  return Tools(tools);
}

inline Workflow parse(const std::string& yaml, const baton_tools* tools = nullptr) {
  baton_workflow_options options;
  baton_workflow_options_init(&options, sizeof options);
  options.tools = tools;
  baton_workflow* workflow = nullptr;
  const auto outcome = outcome_of(baton_workflow_parse, &workflow, yaml.c_str(), &options);
  INFO(outcome.message());
  REQUIRE(outcome);
  return Workflow(workflow);
}

/// A chain of two agents that say up to `tokens` tokens each; with a tool, the second is shown what it makes of the
/// first.
inline std::string team(int tokens, const std::string& tool = "") {
  const std::string calls = tool.empty() ? "" : ", tools: [{" + tool + ": {from: agent_solver_current, size: 3}}]";
  const std::string result = tool.empty() ? "" : " {{ condition_checker_current }}";
  return R"(
version: 1
name: pair
inputs: {question: {type: string, required: true, description: What to answer}}
models: {main: {path: nano}}
defaults: {max_tokens: )" +
         std::to_string(tokens) + R"(}
agents:
  solver: {role: Solver, prompt: {system: You are a math expert., user: "Question:\n{{ question }}"}}
  checker: {role: Checker, prompt: {user: "{{ question }}\n\nSolver:\n{{ agent_solver_current }})" +
         result + "\"}" + calls + R"(}
workflow: {topology: chain, agents: [solver, checker]}
outputs: {answer: "{{ agent_checker_current }}"}
)";
}

inline constexpr baton_pair kQuestion = {"question",
                                         "Mia has 12 apples. She buys 7 more apples. How many apples does Mia have?"};

/// Of the question, for start.
inline baton_run_options run_options() {
  baton_run_options options;
  baton_run_options_init(&options, sizeof options);
  options.inputs = &kQuestion;
  options.input_count = 1;
  return options;
}

inline Run start(const Engine& engine, const Workflow& workflow, const baton_run_options& options = run_options()) {
  baton_run* run = nullptr;
  const auto outcome = outcome_of(baton_engine_start, &run, engine.get(), workflow.get(), &options);
  INFO(outcome.message());
  REQUIRE(outcome);
  return Run(run);
}

inline baton_status wait(const Run& run) { return baton_run_wait(run.get(), -1, nullptr); }

inline std::string output(const Run& run, const char* name = "answer") {
  char* text = nullptr;
  std::size_t length = 0;
  REQUIRE(outcome_of(baton_run_output, &text, &length, run.get(), name));
  const Text owned(text);
  return {text, length};
}

inline std::string record(const Run& run) {
  char* json = nullptr;
  REQUIRE(outcome_of(baton_run_record, &json, run.get()));
  return Text(json).get();
}

}  // namespace baton::test::c
