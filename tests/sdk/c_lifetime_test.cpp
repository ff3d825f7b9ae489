// SPDX-License-Identifier: Apache-2.0
// The C interface under threads, and its handles freed at any time and in any order.
#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "tests/sdk/c_handles.h"
#include "tests/support/process_memory.h"
#include "tests/support/process_threads.h"

namespace c_lifetime_test {

namespace {

using namespace baton::test::c;
using namespace std::chrono_literals;
using baton::test::ProcessMemory, baton::test::threads_end, baton::test::threads_of_process;

}  // namespace

TEST_CASE("C: handles are freed in any order, also while the run goes on") {
  std::array<int, 4> order = {0, 1, 2, 3};
  const auto before = threads_of_process();
  std::atomic<int> calls = 0;
  do {
    auto tools = tools_with(
        "tool",
        [](baton_tool_call* call, void* data) {
          ++*static_cast<std::atomic<int>*>(data);
          return baton_tool_call_return(call, "done", nullptr) == BATON_OK;
        },
        &calls);
    auto engine = open_engine();
    auto workflow = parse(team(16, "tool"), tools.get());
    auto run = start(engine, workflow);
    for (const int which : order) {
      if (which == 0) engine.reset();
      if (which == 1) workflow.reset();
      if (which == 2) tools.reset();
      if (which == 3) {
        if (order[3] == 3) CHECK(wait(run) == BATON_OK);  // the run alone keeps what it needs
        run.reset();
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(calls >= 6);  // of the orders that wait for the run
  CHECK(threads_end(before));
}

TEST_CASE("C: a run is freed in its own callbacks") {
  const auto before = threads_of_process();
  struct Seen {
    std::atomic<baton_run*> run = nullptr;
    std::atomic<int> after = 0;
    std::atomic<bool> freed = false;

    void free_run() {
      while (run == nullptr) std::this_thread::sleep_for(1ms);
      baton_run_free(run);
      freed = true;
    }
  };
  {
    Seen seen;
    const auto engine = open_engine();
    auto options = run_options();
    options.user_data = &seen;
    options.on_event = [](const baton_event* event, void* data) {
      auto& all = *static_cast<Seen*>(data);
      if (all.freed) ++all.after;
      if (baton_event_get_type(event) == BATON_EVENT_TOKEN && !all.freed) all.free_run();
      return true;
    };
    seen.run = start(engine, parse(team(400)), options).release();
    while (!seen.freed) std::this_thread::sleep_for(1ms);
    const auto tools = tools_with(
        "tool",
        [](baton_tool_call*, void* data) {
          static_cast<Seen*>(data)->free_run();
          return true;
        },
        &seen);
    seen.run = nullptr;
    seen.freed = false;
    seen.run = start(engine, parse(team(8, "tool"), tools.get())).release();
    while (!seen.freed) std::this_thread::sleep_for(1ms);
    CHECK(wait(start(engine, parse(team(4)))) == BATON_OK);
    CHECK(seen.after == 0);
  }
  CHECK(threads_end(before));
}

TEST_CASE("C: a callback frees the engine and the workflow that it was called for") {
  struct Handles {
    Engine engine;
    Workflow workflow;
  } handles;
  baton_engine_options options{};
  options.user_data = &handles;
  options.on_load = [](const char*, double, void* data) {
    static_cast<Handles*>(data)->engine.reset();
    static_cast<Handles*>(data)->workflow.reset();
  };
  handles.engine = open_engine(options);
  handles.workflow = parse(team(4));
  CHECK(outcome_of(baton_engine_prepare, handles.engine.get(), handles.workflow.get()));
  CHECK(handles.engine == nullptr);
}

TEST_CASE("C: several threads share an engine, a workflow and a run") {
  const auto engine = open_engine();
  const auto workflow = parse(team(12));
  const auto alone = output(start(engine, workflow));
  std::atomic<int> good = 0, events = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&] {
      const auto options = run_options();
      baton_run* started = nullptr;
      if (baton_engine_start(&started, engine.get(), workflow.get(), &options, nullptr) != BATON_OK) return;
      const Run run(started);
      char* text = nullptr;
      if (baton_run_output(&text, nullptr, started, "answer", nullptr) == BATON_OK) good += alone == Text(text).get();
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(good == 6);

  threads.clear();
  const auto run = start(engine, workflow);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      baton_event* event = nullptr;
      while (baton_run_next(&event, run.get(), 1000, nullptr) == BATON_OK) {
        ++events;
        baton_event_free(event);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  int alone_events = 0;
  const auto again = start(engine, workflow);
  baton_event* event = nullptr;
  while (baton_run_next(&event, again.get(), -1, nullptr) == BATON_OK) {
    ++alone_events;
    baton_event_free(event);
  }
  CHECK(events == alone_events);
}

TEST_CASE("C: runs that end at any moment leave the engine as it was") {
  const auto engine = open_engine();
  const auto workflow = parse(team(60));
  const auto alone = output(start(engine, workflow));
  std::mt19937 random(7);
  const auto any = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  int unfinished = 0;
  for (int i = 0; i < 60; ++i) {
    auto options = run_options();
    if (any(4) == 0) options.timeout_ms = 1 + any(80);
    auto run = start(engine, workflow, options);
    std::this_thread::sleep_for(std::chrono::microseconds(any(80000)));
    const int way = any(4);
    if (way == 0) baton_run_stop(run.get());
    if (way == 1) baton_run_cancel(run.get());
    if (way == 2) run.reset();
    if (!run) continue;
    const baton_status status = wait(run);
    unfinished += status != BATON_OK;
    CHECK((status == BATON_OK || status == BATON_STOPPED || status == BATON_TIMEOUT));
    if (status == BATON_OK) CHECK(output(run) == alone);
    if (way == 1 && status == BATON_STOPPED) CHECK(output(run).empty());
  }
  CHECK(unfinished > 0);
  CHECK(output(start(engine, workflow)) == alone);
}

TEST_CASE("C: 100 engines opened, used and freed leave the process as large as 20 did", "[stress]") {
  const auto use_once = [yaml = team(8, "tool")] {
    const auto tools = tools_with(
        "tool",
        [](baton_tool_call* call, void*) { return baton_tool_call_return(call, "checked", nullptr) == BATON_OK; },
        nullptr);
    const auto engine = open_engine();
    const auto workflow = parse(yaml, tools.get());
    const auto run = start(engine, workflow);
    baton_event* event = nullptr;
    while (baton_run_next(&event, run.get(), -1, nullptr) == BATON_OK) baton_event_free(event);
    REQUIRE(wait(run) == BATON_OK);
    REQUIRE_FALSE(record(run).empty());
    baton_workflow* invalid = nullptr;
    REQUIRE(outcome_of(baton_workflow_parse, &invalid, "version: 2", nullptr).status == BATON_INVALID);
  };
  for (int i = 0; i < 20; ++i) use_once();
  const ProcessMemory after_20 = ProcessMemory::now();
  for (int i = 20; i < 100; ++i) use_once();
  const ProcessMemory after_100 = ProcessMemory::now();
  INFO("in use " << after_20.in_use << " bytes after 20 engines, then " << after_100.in_use);
  if (!baton::test::kFreedIsKept) CHECK(after_100.in_use - after_20.in_use < baton::test::kThreadCache);
}

}  // namespace c_lifetime_test
