// SPDX-License-Identifier: Apache-2.0
// The C interface: what each function gives, with the shipped nano model.
#include <baton/baton.h>
#include <baton/version.h>

#include <atomic>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/sdk/c_handles.h"
#include "tests/support/temp_folder.h"

namespace c_interface_test {

namespace {

using namespace baton::test::c;
using namespace std::chrono_literals;
using baton::test::TempFolder;
using Json = nlohmann::json;
using Catch::Matchers::Contains;

const Engine& engine() {
  static const Engine shared = open_engine();
  return shared;
}

std::vector<std::string> members(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

/// A stopwatch for the sake of tests that must not wait.
struct Watch {
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  bool below(std::chrono::milliseconds time) const { return std::chrono::steady_clock::now() - begin < time; }
};

}  // namespace

TEST_CASE("C: statuses have names and the numbers of the runner's exit codes") {
  CHECK(std::string(baton_version()) == baton::version());
  CHECK((BATON_OK == 0 && BATON_FAILED == 1 && BATON_USAGE == 2 && BATON_INVALID == 3 && BATON_RESOURCES == 4 &&
         BATON_TIMEOUT == 5 && BATON_STOPPED == 130));
  CHECK(std::string(baton_status_name(BATON_INVALID)) == "invalid workflow");
  CHECK(std::string(baton_status_name(static_cast<baton_status>(99))) == "unknown");
}

TEST_CASE("C: a workflow tells what it takes and gives") {
  const auto workflow = parse(team(8));
  char* text = nullptr;
  REQUIRE(outcome_of(baton_workflow_describe, &text, workflow.get()));
  CHECK(Json::parse(Text(text).get()) ==
        Json::parse(R"({"name": "pair", "inputs": [{"name": "question", "required": true, "default": null,
                        "description": "What to answer"}], "agents": [{"id": "solver", "role": "Solver", "has_answer": false},
                        {"id": "checker", "role": "Checker", "has_answer": false}], "outputs": ["answer"]})"));
  REQUIRE(outcome_of(baton_workflow_graph, &text, workflow.get(), "mermaid"));
  CHECK_THAT(Text(text).get(), Contains("solver"));
  CHECK(outcome_of(baton_workflow_graph, &text, workflow.get(), "svg").status == BATON_USAGE);
  CHECK(text == nullptr);
}

TEST_CASE("C: a wrong workflow gives every mistake, as text and as JSON") {
  std::string yaml = team(8);
  yaml.replace(yaml.find("{{ question }}"), 14, "{{ questoin }}");
  yaml.replace(yaml.find("{{ agent_solver_current }}"), 26, "{{ agent_solvr_current }}");
  baton_workflow_options options;
  baton_workflow_options_init(&options, sizeof options);
  options.name = "team.yaml";
  baton_workflow* workflow = nullptr;
  const auto outcome = outcome_of(baton_workflow_parse, &workflow, yaml.c_str(), &options);
  CHECK(outcome.status == BATON_INVALID);
  CHECK(workflow == nullptr);
  CHECK_THAT(outcome.message(),
             Contains("team.yaml:8:") && Contains("team.yaml:9:") && Contains("'agent_solver_current'"));
  const auto mistakes = Json::parse(baton_error_mistakes(outcome.error.get()));
  REQUIRE(mistakes.size() == 2);
  CHECK(mistakes[0]["line"] == 8);
  CHECK(mistakes[0]["column"] > 1);
  CHECK(mistakes[0]["code"].get<std::string>().size() == 5);
  CHECK_THAT(mistakes[1]["hint"].get<std::string>(), Contains("agent_solver_current"));

  CHECK(outcome_of(baton_workflow_parse, &workflow, "", nullptr).status == BATON_INVALID);
  CHECK(outcome_of(baton_workflow_parse, &workflow, "name: \xff", nullptr).status == BATON_INVALID);
  CHECK(outcome_of(baton_workflow_load, &workflow, "/no/such/file.yaml", nullptr).status == BATON_INVALID);
}

TEST_CASE("C: a file is read, with settings over it") {
  const std::string file = (baton::test::source_folder() / "workflows/library/math_team.yaml").string();
  baton_workflow_options options;
  baton_workflow_options_init(&options, sizeof options);
  const baton_pair set[] = {{"defaults.max_tokens", "3"}, {"relay.method", "full"}};
  options.set = set;
  options.set_count = 2;
  baton_workflow* loaded = nullptr;
  REQUIRE(outcome_of(baton_workflow_load, &loaded, file.c_str(), &options));
  const Workflow workflow(loaded);
  auto run_with = run_options();
  const baton_pair input = {"user_question", kQuestion.value};
  run_with.inputs = &input;
  const auto run = start(engine(), workflow, run_with);
  const auto json = Json::parse(record(run));
  CHECK(json["relay"] == "full");
  for (const auto& agent : json["agents"]) CHECK(agent["output_tokens"] <= 3);

  const baton_pair wrong[] = {{"defaults.max_tokns", "3"}};
  options.set = wrong;
  options.set_count = 1;
  CHECK(outcome_of(baton_workflow_load, &loaded, file.c_str(), &options).status == BATON_INVALID);
}

TEST_CASE("C: a run gives its events as the runner prints them, then its record and outputs") {
  const auto workflow = parse(team(8));
  std::vector<std::string> from_callback;
  auto options = run_options();
  options.user_data = &from_callback;
  options.on_event = [](const baton_event* event, void* lines) {
    static_cast<std::vector<std::string>*>(lines)->push_back(baton_event_json(event));
    return true;
  };
  const auto run = start(engine(), workflow, options);
  std::vector<std::string> lines;
  std::map<std::string, std::string> texts;
  baton_event* next = nullptr;
  baton_status status = BATON_OK;
  while ((status = outcome_of(baton_run_next, &next, run.get(), std::int64_t{-1}).status) == BATON_OK) {
    const Event event(next);
    lines.push_back(baton_event_json(event.get()));
    const auto json = Json::parse(lines.back());
    std::size_t length = 99;
    const std::string text = baton_event_text(event.get(), &length);
    CHECK(text.size() == length);
    const std::string agent = baton_event_agent(event.get());
    switch (baton_event_get_type(event.get())) {
      case BATON_EVENT_TOKEN:
        CHECK(json["type"] == "token");
        CHECK(json["text"] == text);
        CHECK(json["agent"] == agent);
        texts[agent] += text;
        break;
      case BATON_EVENT_RELAYED:
        CHECK(json["to"] == agent);
        break;
      case BATON_EVENT_AGENT_FINISHED:
        CHECK(json["record"]["output"] == text);
        CHECK(texts[agent] == text);
        break;
      case BATON_EVENT_RUN_FINISHED:
        CHECK(json["type"] == "run_finished");
        CHECK(json["record"] == Json::parse(record(run)));
        CHECK(agent.empty());
        break;
      default:
        break;
    }
  }
  CHECK(status == BATON_END);
  CHECK(next == nullptr);
  CHECK(baton_run_next(&next, run.get(), 0, nullptr) == BATON_END);
  CHECK(wait(run) == BATON_OK);
  CHECK(lines.size() > 16);
  CHECK(lines == from_callback);
  CHECK(output(run) == texts["checker"]);
  CHECK(Json::parse(record(run))["outputs"]["answer"] == texts["checker"]);
  char* text = nullptr;
  const auto other = outcome_of(baton_run_output, &text, static_cast<std::size_t*>(nullptr), run.get(), "anser");
  CHECK(other.status == BATON_USAGE);
  CHECK_THAT(other.message(), Contains("'anser'") && Contains("answer"));
}

TEST_CASE("C: the record is that of C++, the seed is the caller's") {
  const auto workflow = parse(team(8));
  auto options = run_options();
  options.has_seed = true;
  options.seed = ~std::uint64_t{0};
  const auto json = Json::parse(record(start(engine(), workflow, options)));
  CHECK(json["seed"] == ~std::uint64_t{0});
  CHECK(Json::parse(record(start(engine(), workflow)))["seed"] == 0);

  const auto same = baton::Engine::open({.model = nano(), .device = "cpu", .threads = 1})
                        .run(baton::Workflow::parse(team(8)),
                             {.inputs = {{kQuestion.name, kQuestion.value}}, .seed = ~std::uint64_t{0}});
  CHECK(json["outputs"]["answer"] == same.outputs.at("answer"));
  CHECK(members(json) == members(Json::parse(same.to_json())));
}

TEST_CASE("C: waiting can be cut short") {
  struct Gate {
    std::atomic<bool> entered = false;
    std::atomic<bool> open = false;
  } gate;
  const auto tools = tools_with(
      "gate",
      [](baton_tool_call* call, void* data) {
        auto& at = *static_cast<Gate*>(data);
        at.entered = true;
        while (!at.open && !baton_tool_call_stop_requested(call)) std::this_thread::sleep_for(1ms);
        return true;
      },
      &gate);
  const auto run = start(engine(), parse(team(8, "gate"), tools.get()));
  while (!gate.entered) std::this_thread::sleep_for(1ms);
  baton_event* event = nullptr;
  baton_status status = BATON_OK;
  while ((status = baton_run_next(&event, run.get(), 0, nullptr)) == BATON_OK) baton_event_free(event);
  CHECK(status == BATON_PENDING);
  CHECK(event == nullptr);
  const Watch watch;
  CHECK(baton_run_next(&event, run.get(), 20, nullptr) == BATON_PENDING);
  CHECK(outcome_of(baton_run_wait, run.get(), std::int64_t{0}).status == BATON_PENDING);
  CHECK(outcome_of(baton_run_wait, run.get(), std::int64_t{20}).status == BATON_PENDING);
  CHECK(watch.below(5s));
  gate.open = true;
  CHECK(outcome_of(baton_run_wait, run.get(), std::numeric_limits<std::int64_t>::max()).status == BATON_OK);
  CHECK(baton_run_next(&event, run.get(), std::numeric_limits<std::int64_t>::max(), nullptr) == BATON_OK);
  baton_event_free(event);
}

TEST_CASE("C: stop keeps what there is, cancel drops it, a timeout says so") {
  const auto workflow = parse(team(400));
  for (const bool keep : {true, false}) {
    struct Seen {
      bool keep;
      int tokens = 0;
      std::atomic<baton_run*> run = nullptr;
    } seen{keep};
    auto options = run_options();
    options.user_data = &seen;
    options.on_event = [](const baton_event* event, void* data) {
      auto& all = *static_cast<Seen*>(data);
      if (baton_event_get_type(event) != BATON_EVENT_TOKEN || ++all.tokens != 3) return true;
      while (all.run == nullptr) std::this_thread::sleep_for(1ms);
      all.keep ? baton_run_stop(all.run) : baton_run_cancel(all.run);
      return true;
    };
    const auto run = start(engine(), workflow, options);
    seen.run = run.get();
    const auto outcome = outcome_of(baton_run_wait, run.get(), std::int64_t{-1});
    CHECK(outcome.status == BATON_STOPPED);
    CHECK_FALSE(outcome.message().empty());
    const auto json = Json::parse(record(run));
    CHECK(json["state"] == "cancelled");
    CHECK(json["agents"][0]["output"].get<std::string>().empty() == !keep);
    CHECK(output(run).empty());  // of the second agent, which had not begun
  }
  auto options = run_options();
  options.timeout_ms = 1;
  CHECK(wait(start(engine(), workflow, options)) == BATON_TIMEOUT);
  options.timeout_ms = std::numeric_limits<std::int64_t>::max();
  CHECK(wait(start(engine(), parse(team(4)), options)) == BATON_OK);
}

TEST_CASE("C: a model or a device that is not there is a resource") {
  baton_engine_options options;
  baton_engine_options_init(&options, sizeof options);
  options.model = "/no/such/model";
  baton_engine* opened = nullptr;
  CHECK(outcome_of(baton_engine_open, &opened, &options).status == BATON_RESOURCES);
  CHECK(opened == nullptr);

  baton_engine_options abacus{};
  abacus.device = "abacus";
  const auto without_device = open_engine(abacus);
  baton_engine_options_init(&options, sizeof options);
  REQUIRE(outcome_of(baton_engine_open, &opened, &options));
  const Engine without_model(opened);
  std::string yaml = team(4);
  const auto nowhere = parse(yaml.replace(yaml.find("path: nano"), 10, "path: /no/such/model"));
  for (const Engine* own : {&without_device, &without_model}) {
    CHECK(outcome_of(baton_engine_prepare, own->get(), nowhere.get()).status == BATON_RESOURCES);
    const auto run = start(*own, nowhere);
    baton_event* event = nullptr;
    CHECK(baton_run_next(&event, run.get(), -1, nullptr) == BATON_END);
    const auto outcome = outcome_of(baton_run_wait, run.get(), std::int64_t{-1});
    CHECK(outcome.status == BATON_RESOURCES);
    CHECK_THAT(outcome.message(), Contains(own == &without_device ? "abacus" : "/no/such/model"));
    char* json = nullptr;
    CHECK(outcome_of(baton_run_record, &json, run.get()).status == BATON_RESOURCES);
    CHECK(json == nullptr);
  }
}

TEST_CASE("C: a run is recorded, and says why it could not be") {
  const TempFolder place;
  place.write("file", "not a folder");
  const std::string folder = (place.path() / "run").string(), nowhere = (place.path() / "file/run").string();
  const auto error_of = [](const Run& run) {
    char* text = nullptr;
    REQUIRE(outcome_of(baton_run_record_error, &text, run.get()));
    return std::string(Text(text).get());
  };
  baton_run_options options = run_options();
  options.record = folder.c_str();
  const auto run = start(engine(), parse(team(4)), options);
  CHECK(wait(run) == BATON_OK);
  CHECK(error_of(run).empty());
  CHECK(Json::parse(std::ifstream(place.path() / "run/run.json"))["outputs"]["answer"] == output(run));
  baton_run* second = nullptr;
  const auto workflow = parse(team(4));
  CHECK(outcome_of(baton_engine_start, &second, engine().get(), workflow.get(), &options).status == BATON_USAGE);

  options.record = nowhere.c_str();
  const auto unwritten = start(engine(), workflow, options);
  CHECK(wait(unwritten) == BATON_OK);
  CHECK_THAT(error_of(unwritten), Contains("file"));
}

TEST_CASE("C: loading reports its progress, and a warning what it warns of") {
  const auto folder = std::filesystem::temp_directory_path() / "baton_c_interface_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& entry : std::filesystem::directory_iterator(nano())) {
    if (entry.path().filename().string().find("corrections") == std::string::npos)
      std::filesystem::create_symlink(entry.path(), folder / entry.path().filename());
  }
  std::ofstream(folder / "baton.corrections.safetensors") << "not one";
  struct Seen {
    std::vector<double> shares;
    std::vector<std::string> warnings;
  } seen;
  baton_engine_options options{};
  options.user_data = &seen;
  options.on_load = [](const char*, double share, void* data) { static_cast<Seen*>(data)->shares.push_back(share); };
  options.on_warning = [](const char* text, void* data) { static_cast<Seen*>(data)->warnings.emplace_back(text); };
  const std::string model = folder.string();
  options.model = model.c_str();
  const auto own = open_engine(options);
  CHECK(seen.shares.empty());
  REQUIRE(outcome_of(baton_engine_prepare, own.get(), parse(team(4)).get()));
  REQUIRE_FALSE(seen.shares.empty());
  CHECK(std::is_sorted(seen.shares.begin(), seen.shares.end()));
  CHECK(seen.shares.back() == 1.0);
  REQUIRE(seen.warnings.size() == 1);
  CHECK_THAT(seen.warnings[0], Contains("corrections"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("C: a tool is given the text and its options, and fills its placeholder") {
  std::string seen;
  const auto tools = tools_with(
      "count",
      [](baton_tool_call* call, void* data) {
        std::size_t length = 0;
        const std::string text = baton_tool_call_text(call, &length);
        auto& all = *static_cast<std::string*>(data);
        all = std::string(baton_tool_call_options(call)) + baton_tool_call_option(call, "size");
        if (baton_tool_call_option(call, "other") == nullptr && baton_tool_call_timeout_ms(call) > 0) all += "!";
        if (baton_tool_call_return(call, "\xff", nullptr) == BATON_USAGE) all += "?";
        if (baton_tool_call_return(call, nullptr, nullptr) == BATON_USAGE) all += "?";
        return baton_tool_call_return(call, "first", nullptr) == BATON_OK &&
               baton_tool_call_return(call, std::to_string(length).c_str(), nullptr) == BATON_OK;
      },
      &seen);
  const auto workflow = parse(team(8, "count"), tools.get());
  const auto run = start(engine(), workflow);
  CHECK(wait(run) == BATON_OK);
  CHECK(seen == R"({"size":"3"}3!??)");
  std::string result, solver;
  baton_event* next = nullptr;
  while (baton_run_next(&next, run.get(), -1, nullptr) == BATON_OK) {
    const Event event(next);
    if (baton_event_get_type(next) == BATON_EVENT_TOOL_CALLED) result = baton_event_text(next, nullptr);
    if (baton_event_get_type(next) == BATON_EVENT_AGENT_FINISHED && solver.empty())
      solver = baton_event_text(next, nullptr);
  }
  CHECK(result == std::to_string(solver.size()));

  baton_workflow* invalid = nullptr;
  CHECK(outcome_of(baton_workflow_parse, &invalid, team(8, "count").c_str(), nullptr).status == BATON_INVALID);
}

TEST_CASE("C: a tool that fails, or throws, before a prompt fails its turn, and the run says so") {
  for (const baton_tool_callback callback :
       {baton_tool_callback([](baton_tool_call*, void*) { return false; }),
        baton_tool_callback(
            [](baton_tool_call*call, void*) { return baton_tool_call_return(call, "no", nullptr) != BATON_OK; }),
        baton_tool_callback([](baton_tool_call*, void*) -> bool { throw std::runtime_error("a host in C++"); }),
        baton_tool_callback([](baton_tool_call*, void*) -> bool { throw 1; })}) {
    const auto tools = tools_with("broken", callback);
    const auto run = start(engine(), parse(team(4, "broken"), tools.get()));
    CHECK(wait(run) == BATON_FAILED);
    int calls = 0;
    baton_event* next = nullptr;
    while (baton_run_next(&next, run.get(), -1, nullptr) == BATON_OK) {
      const Event event(next);
      if (baton_event_get_type(next) != BATON_EVENT_TOOL_CALLED) continue;
      ++calls;
      CHECK(Json::parse(baton_event_json(next))["ok"] == false);
      CHECK_FALSE(std::string(baton_event_text(next, nullptr)).empty());
    }
    CHECK(calls == 1);
  }
}

TEST_CASE("C: on_end tells that a run is over, also of one whose model could not be opened") {
  baton_engine_options abacus{};
  abacus.device = "abacus";
  const auto without_device = open_engine(abacus);
  std::atomic<int> ends = 0;
  auto options = run_options();
  options.user_data = &ends;
  options.on_end = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  for (const auto& [own, expected] : {std::pair(&engine(), BATON_OK), std::pair(&without_device, BATON_RESOURCES)}) {
    ends = 0;
    const auto run = start(*own, parse(team(4)), options);
    while (ends == 0) std::this_thread::sleep_for(1ms);
    CHECK(outcome_of(baton_run_wait, run.get(), std::int64_t{0}).status == expected);
    CHECK(ends == 1);
  }
}

TEST_CASE("C: on_event ends the run with false, and keeps what there is") {
  auto options = run_options();
  struct Seen {
    int tokens = 0;
    baton_event_type last = BATON_EVENT_RUN_STARTED;
  } seen;
  options.user_data = &seen;
  options.on_event = [](const baton_event* event, void* data) {
    auto& all = *static_cast<Seen*>(data);
    all.last = baton_event_get_type(event);
    return all.last != BATON_EVENT_TOKEN || ++all.tokens < 5;
  };
  const auto workflow = parse(team(400));
  const auto run = start(engine(), workflow, options);
  CHECK(wait(run) == BATON_STOPPED);
  CHECK(seen.tokens >= 5);
  CHECK(seen.last == BATON_EVENT_RUN_FINISHED);
  CHECK_FALSE(Json::parse(record(run))["agents"][0]["output"].get<std::string>().empty());

  options.on_event = [](const baton_event*, void*) -> bool { throw std::runtime_error("a host in C++"); };
  const auto outcome = outcome_of(baton_run_wait, start(engine(), workflow, options).get(), std::int64_t{-1});
  CHECK(outcome.status == BATON_FAILED);
  CHECK(outcome.message() == "a host in C++");
}

namespace {

/// Tries every way of waiting for a run, where it should be refused.
struct HeldUp {
  std::atomic<baton_run*> run = nullptr;
  std::vector<baton_status> statuses;
  std::string message;
  baton_status other = BATON_FAILED;

  void try_to_wait() {
    while (run == nullptr) std::this_thread::sleep_for(1ms);
    char* text = nullptr;
    baton_event* next = nullptr;
    baton_run* mine = run;
    statuses = {baton_run_wait(mine, -1, nullptr),        baton_run_wait(mine, 5, nullptr),
                baton_run_record(&text, mine, nullptr),   baton_run_output(&text, nullptr, mine, "answer", nullptr),
                baton_run_next(&next, mine, -1, nullptr), baton_run_wait(mine, 0, nullptr)};
    message = outcome_of(baton_run_wait, mine, std::int64_t{-1}).message();
  }
};

const std::vector<baton_status> kRefused = {BATON_USAGE, BATON_USAGE, BATON_USAGE,
                                            BATON_USAGE, BATON_USAGE, BATON_PENDING};

}  // namespace

TEST_CASE("C: on_event cannot wait for its own run") {
  HeldUp held;
  auto options = run_options();
  options.user_data = &held;
  options.on_event = [](const baton_event* event, void* data) {
    if (baton_event_get_type(event) == BATON_EVENT_RUN_FINISHED) static_cast<HeldUp*>(data)->try_to_wait();
    return true;
  };
  const auto run = start(engine(), parse(team(4)), options);
  held.run = run.get();
  CHECK(wait(run) == BATON_OK);
  CHECK(held.statuses == kRefused);
}

TEST_CASE("C: a tool cannot wait for its own run, but for another") {
  HeldUp held;
  const auto tools = tools_with(
      "tool",
      [](baton_tool_call*, void* data) {
        auto& all = *static_cast<HeldUp*>(data);
        all.try_to_wait();
        all.other = wait(start(engine(), parse(team(4))));
        return true;
      },
      &held);
  const auto run = start(engine(), parse(team(4, "tool"), tools.get()));
  held.run = run.get();
  CHECK(wait(run) == BATON_OK);
  CHECK(held.statuses == kRefused);
  CHECK(held.message == "called from a tool that the run itself waits for, which would wait for itself");
  CHECK(held.other == BATON_OK);
}

TEST_CASE("C: a callback of the engine cannot wait for a run of it") {
  HeldUp held;
  baton_engine_options options{};
  options.user_data = &held;
  options.on_load = [](const char*, double, void* data) {
    if (auto& all = *static_cast<HeldUp*>(data); all.statuses.empty()) all.try_to_wait();
  };
  const auto own = open_engine(options);
  const auto run = start(own, parse(team(4)));
  held.run = run.get();
  CHECK(wait(run) == BATON_OK);
  CHECK(held.statuses == kRefused);
}

}  // namespace c_interface_test
