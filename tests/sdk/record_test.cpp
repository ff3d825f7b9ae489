// SPDX-License-Identifier: Apache-2.0
// RunOptions::record: the folder that `baton run --record` writes, from a program.
#include <baton/baton.h>
#include <baton/session.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "sdk/record/record_folder.h"
#include "tests/sdk/asking_team.h"
#include "tests/support/folders.h"
#include "tests/support/temp_folder.h"

namespace record_test {

namespace {

namespace fs = std::filesystem;
using baton::RunState;
using baton::test::TempFolder;
using Catch::Matchers::Contains;
using Json = nlohmann::json;

const std::string kTeam = R"(version: 1
name: pair
inputs: {question: {type: string, required: true}}
models: {main: nano}
defaults: {max_tokens: 6}
agents:
  solver: {prompt: "Question: {{ question }}"}
  checker:
    prompt: "{{ condition_checker_current }} {{ agent_solver_current }}"
    tools: [{count: {from: agent_solver_current}}]
workflow: {topology: chain}
outputs: {answer: "{{ agent_checker_current }}"}
)";

const std::map<std::string, std::string> kInputs = {{"question", "What is 6 x 7?"}};

baton::Engine open_engine() {
  return baton::Engine::open(
      {.model = (baton::test::source_folder() / "samples/models/nano").string(), .device = "cpu", .threads = 1});
}

baton::Tools with_count() {
  return baton::Tools().add("count", [](const baton::ToolCall& call) {
    return baton::ToolResult{true, std::to_string(call.text.size()) + " bytes"};
  });
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) names.insert(fs::relative(entry.path(), folder).string());
  }
  return names;
}

}  // namespace

TEST_CASE("a run is recorded as the runner records it") {
  const TempFolder place;
  place.write("team.yaml", kTeam);
  const auto workflow = baton::Workflow::load(place.path() / "team.yaml",
                                              {.tools = with_count(), .set = {{"defaults.temperature", "0.5"}}});
  const baton::Engine engine = open_engine();
  const fs::path folder = place.path() / "runs/1";
  bool journal_seen = false;
  std::size_t events = 0;
  const auto record = engine.run(workflow, {.inputs = kInputs,
                                            .seed = 7,
                                            .on_event =
                                                [&](const baton::Event&) {
                                                  ++events;
                                                  journal_seen =
                                                      journal_seen || fs::exists(place.path() / "runs/1.journal");
                                                },
                                            .record = folder});
  REQUIRE(record.state == RunState::ok);
  CHECK(record.record_error.empty());
  CHECK(journal_seen);
  CHECK(files_in(place.path() / "runs") == std::set<std::string>{"1/run.json", "1/events.ndjson", "1/graph.json",
                                                                 "1/journal.ndjson", "1/prompts/solver.txt",
                                                                 "1/prompts/solver.ids.json", "1/prompts/checker.txt",
                                                                 "1/prompts/checker.ids.json"});
  CHECK(text_of(folder / "run.json") == record.to_json() + "\n");
  CHECK(text_of(folder / "graph.json") == workflow.graph("json"));
  // The result of the tool and the answer of the first agent stand in the second prompt.
  CHECK_THAT(text_of(folder / "prompts/checker.txt"),
             Contains(record.agents[1].tools[0].result + " " + record.agents[0].output));

  const auto shown = lines_of(folder / "events.ndjson");
  CHECK(shown.size() == events);
  CHECK(Json::parse(shown.front())["type"] == "run_started");
  CHECK(Json::parse(shown.back())["type"] == "run_finished");

  const auto journal = lines_of(folder / "journal.ndjson");
  REQUIRE(journal.size() == 3);
  const Json head = Json::parse(journal[0]);
  CHECK(head["file"] == (place.path() / "team.yaml").string());
  CHECK(head["set"] == Json{"defaults.temperature=0.5"});
  CHECK(head["models"].size() == 1);
  CHECK(head["fingerprint"] == workflow.fingerprint());
  CHECK(head["inputs"] == Json(kInputs));
  CHECK(head["seed"] == 7);
  CHECK(Json::parse(journal[2])["record"]["output"] == record.agents[1].output);

  CHECK_THROWS_WITH(engine.start(workflow, {.inputs = kInputs, .record = folder}), Contains("exists already"));
  CHECK_THROWS_AS(engine.start(workflow, {.inputs = kInputs, .record = folder}), baton::InputError);
}

TEST_CASE("each of two turns of an agent in a round has its own id and prompt in the record") {
  const TempFolder place;
  const auto workflow = baton::Workflow::parse(R"(version: 1
inputs: {question: string}
models: {main: nano}
defaults: {max_tokens: 6, temperature: 1}
agents:
  writer: {prompt: "{{ question }}"}
  reader: {prompt: "{{ agent_writer_current }}"}
workflow:
  topology: graph
  steps: [{agent: writer, id: draft}, {agent: writer, id: better, needs: [draft]}, {agent: reader, needs: [better]}]
)");
  const fs::path folder = place.path() / "run";
  const auto record = open_engine().run(workflow, {.inputs = kInputs, .seed = 7, .record = folder});
  REQUIRE(record.state == RunState::ok);
  REQUIRE(record.agents.size() == 3);
  CHECK(record.agents[0].turn == "draft");
  CHECK(record.agents[1].turn == "better");
  CHECK(record.agents[2].turn == "reader");
  for (const baton::AgentRecord& turn : record.agents) {
    CHECK(fs::exists(folder / "prompts" / (turn.turn + ".txt")));
    const Json ids = Json::parse(text_of(folder / "prompts" / (turn.turn + ".ids.json")));
    CHECK(static_cast<std::int64_t>(ids.size()) == turn.prompt_tokens);
  }
  REQUIRE(record.agents[0].output != record.agents[1].output);
  CHECK_THAT(text_of(folder / "prompts/reader.txt"), Contains(record.agents[1].output));
}

TEST_CASE("a recorded run that waits for an answer is replaced by the one that goes on") {
  const TempFolder place;
  const auto workflow = baton::Workflow::parse(baton::test::asking());
  const baton::Engine engine = open_engine();
  const fs::path folder = place.path() / "run";
  std::vector<baton::AgentFinished> finished;
  const auto keep = [&](const baton::Event& event) {
    if (const auto* one = std::get_if<baton::AgentFinished>(&event);
        one != nullptr && one->record.state == baton::TurnState::ok)
      finished.push_back(*one);
  };
  const auto first = engine.run(workflow, {.inputs = kInputs, .on_event = keep, .record = folder});
  REQUIRE(first.state == RunState::suspended);
  REQUIRE(finished.size() == 1);
  CHECK(Json::parse(text_of(folder / "run.json"))["state"] == "suspended");
  place.write("run/note.txt", "mine");

  const auto second = engine.run(workflow, {.inputs = kInputs,
                                            .finished = finished,
                                            .answers = {{"approval", "yes"}},
                                            .record = folder,
                                            .record_resumed = true});
  REQUIRE(second.state == RunState::ok);
  CHECK(second.record_error.empty());
  CHECK(Json::parse(text_of(folder / "run.json"))["state"] == "ok");
  CHECK(text_of(folder / "note.txt") == "mine");
  const auto journal = lines_of(folder / "journal.ndjson");
  CHECK(journal.size() == 4);  // the head, and three turns, each once
  CHECK(Json::parse(journal[0])["file"] == "");
  CHECK(files_in(place.path()).count("run.journal") == 0);
}

TEST_CASE("a run that is cancelled, or cannot begin, leaves no record") {
  const TempFolder place;
  place.write("team.yaml", kTeam);
  const auto workflow = baton::Workflow::load(place.path() / "team.yaml",
                                              {.tools = with_count(), .set = {{"defaults.max_tokens", "400"}}});
  const baton::Engine engine = open_engine();
  const fs::path folder = place.path() / "run";
  {
    const auto run = engine.start(workflow, {.inputs = kInputs, .record = folder});
    for (const baton::Event& event : run.events()) {
      if (std::holds_alternative<baton::Token>(event)) break;
    }
  }
  CHECK(files_in(place.path()) == std::set<std::string>{"team.yaml"});
  CHECK_THROWS_AS(engine.start(workflow, {.record = folder}), baton::InputError);  // the question is missing
  const auto nowhere = baton::Engine::open({.device = "abacus"});
  CHECK_THROWS_AS(nowhere.run(workflow, {.inputs = kInputs, .record = folder}), baton::ResourceError);
  CHECK_THROWS_AS(engine.session(workflow).start({.inputs = kInputs, .record = folder}), baton::InputError);
  CHECK(files_in(place.path()) == std::set<std::string>{"team.yaml"});
}

TEST_CASE("a record that cannot be written takes nothing from the run") {
  const TempFolder place;
  place.write("team.yaml", kTeam);
  place.write("file", "not a folder");
  const auto workflow = baton::Workflow::load(place.path() / "team.yaml", {.tools = with_count()});
  std::vector<std::string> warnings;
  const auto engine =
      baton::Engine::open({.model = (baton::test::source_folder() / "samples/models/nano").string(),
                           .device = "cpu",
                           .threads = 1,
                           .on_warning = [&](const std::string& message) { warnings.push_back(message); }});
  const auto record = engine.run(workflow, {.inputs = kInputs, .record = place.path() / "file/run"});
  CHECK(record.state == RunState::ok);
  CHECK_FALSE(record.outputs.at("answer").empty());
  CHECK(record.record_error.find((place.path() / "file/run").string() + ":") != std::string::npos);
  CHECK(std::count_if(warnings.begin(), warnings.end(),
                      [](const std::string& text) { return text.find("run.journal") != std::string::npos; }) == 1);
}

TEST_CASE("a record that cannot be replaced stays as it was") {
  const TempFolder place;
  const fs::path folder = place.path() / "run";
  fs::create_directories(folder);
  place.write("run/run.json", "old");
  place.write("run/note.txt", "mine");
  baton::RecordFolder record(folder, true);
  record.add("run.json", "new");
  fs::path obstacle;
  SECTION("its new name is taken") {
    obstacle = place.path() / (".run.part-" + std::to_string(baton::process_number()) + ".old");
    fs::create_directories(obstacle / "full");
  }
  SECTION("what lies next to it cannot be moved") {
    if (::geteuid() == 0) return;  // root moves everything
    obstacle = folder / "fixed";
    fs::create_directories(obstacle);
    fs::permissions(obstacle, fs::perms::owner_read | fs::perms::owner_exec);
  }
  CHECK_THROWS_AS(record.commit(), std::runtime_error);
  CHECK(text_of(folder / "run.json") == "old");
  CHECK(text_of(folder / "note.txt") == "mine");

  fs::permissions(obstacle, fs::perms::owner_all);
  fs::remove_all(obstacle);
  record.commit();
  CHECK(text_of(folder / "run.json") == "new");
  CHECK(files_in(place.path()) == std::set<std::string>{"run/run.json", "run/note.txt"});
}

TEST_CASE("a record has the time that its prompts show, and a run with that time has the same prompts") {
  const TempFolder place, model;
  model.copy_from(baton::test::source_folder() / "samples/models/nano");
  model.write("chat_template.jinja",
              "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>\n{% endfor %}"
              "{{ strftime_now('%d %b %Y %H:%M') }}{% if think %} think {{ think }}{% endif %}");
  const auto workflow = baton::Workflow::parse(R"(version: 1
name: dated
models: {main: {path: nano, template: {think: low}}}
defaults: {max_tokens: 3}
agents:
  a: {prompt: "{{ user_question }}"}
  b: {prompt: "{{ user_question }} {{ agent_a_current }}", template: {think: high}}
workflow: {topology: chain}
)");
  const baton::Engine engine = baton::Engine::open({.model = model.path().string(), .device = "cpu", .threads = 1});
  const auto recorded = [&](const std::string& name, const std::string& local_time) {
    return engine.run(workflow,
                      {.inputs = {{"user_question", " hi "}}, .local_time = local_time, .record = place.path() / name});
  };
  const auto prompt = [&](const std::string& name) { return text_of(place.path() / name); };
  const auto first = recorded("1", "2026-11-28T23:59:59");
  REQUIRE(first.state == RunState::ok);
  CHECK(first.local_time == "2026-11-28T23:59:59");
  CHECK(prompt("1/prompts/a.txt") == "<|im_start|>user\nhi<|im_end|>\n28 Nov 2026 23:59 think low");
  CHECK_THAT(prompt("1/prompts/b.txt"), Contains("28 Nov 2026 23:59 think high"));
  CHECK(Json::parse(lines_of(place.path() / "1/journal.ndjson")[0])["local_time"] == first.local_time);

  const auto now = recorded("2", "");
  CHECK(now.local_time.size() == first.local_time.size());
  CHECK(now.local_time != first.local_time);
  CHECK(prompt("2/prompts/a.txt") != prompt("1/prompts/a.txt"));
  const auto again = recorded("3", now.local_time);
  CHECK(prompt("3/prompts/a.txt") == prompt("2/prompts/a.txt"));
  CHECK(again.agents[0].output == now.agents[0].output);
  CHECK_THROWS_WITH(recorded("4", "yesterday"), Contains("local_time: expected a time as"));
  CHECK_THAT(engine.preview(workflow, {.local_time = "2025-01-01T00:00:00"}).turns[0].text(), Contains("01 Jan 2025"));
}

TEST_CASE("roles that a template refuses are merged, or named before the first turn") {
  const TempFolder model;
  model.copy_from(baton::test::source_folder() / "samples/models/nano");
  model.write("chat_template.jinja",
              "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no ' + "
              "m.role) }}{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}");
  const baton::Engine engine = baton::Engine::open({.model = model.path().string(), .device = "cpu", .threads = 1});
  const std::string head = "version: 1\nname: roles\nmodels: {main: nano}\ndefaults: {max_tokens: 2}\n";
  const auto good = baton::Workflow::parse(head + R"(agents:
  a: {prompt: {system: "Be brief.", user: "{{ user_question }}"}}
)");
  const auto preview = engine.preview(good, {.inputs = {{"user_question", "hi"}}});
  CHECK(preview.turns[0].text() == "<|im_start|>user\nBe brief.\n\nhi<|im_end|>\n");
  CHECK_THAT(preview.turns[0].note, Contains("no system message"));
  for (const char* relay : {"auto", "rectify", "exact"}) {
    const auto one = baton::Workflow::parse(head + "relay: " + relay + R"(
agents:
  a: {prompt: {system: "Be brief.", user: "{{ user_question }}"}}
  b: {prompt: "{{ agent_a_current }}"}
workflow: {topology: chain}
)");
    CAPTURE(relay);
    CHECK(engine.run(one, {.inputs = {{"user_question", "hi"}}}).state == RunState::ok);
  }
  const auto bad = baton::Workflow::parse(head + R"(agents:
  good: {prompt: "{{ user_question }}"}
  bad: {prompt: {messages: [{role: assistant, content: "First."}, {role: user, content: "{{ agent_good_current }}"}]}}
workflow: {topology: chain}
)");
  const auto shown = engine.preview(bad, {.inputs = {{"user_question", "hi"}}});
  CHECK(shown.turns[0].error.empty());
  CHECK(shown.turns[0].complete);
  CHECK_THAT(shown.turns[1].error, Contains("agent 'bad': the assistant message (1 of 2)") && Contains("no assistant"));
  CHECK_FALSE(shown.turns[1].complete);
  bool began = false;
  CHECK_THROWS_WITH(engine.run(bad, {.inputs = {{"user_question", "hi"}},
                                     .on_event =
                                         [&](const baton::Event& event) {
                                           began = began || std::holds_alternative<baton::AgentStarted>(event);
                                         }}),
                    Contains("agent 'bad': the assistant message (1 of 2)"));
  CHECK_FALSE(began);
}

TEST_CASE("of runs that go on from one record at the same time one may write") {
  const std::vector<baton::AgentFinished> no_turns;
  const std::vector<baton::EarlierCall> no_calls;
  for (int tries = 0; tries < 20; ++tries) {
    const TempFolder place;
    std::atomic<int> refused = 0;
    std::vector<std::unique_ptr<baton::RunJournal>> journals(4);
    {
      std::vector<std::jthread> threads;
      for (auto& journal : journals) {
        threads.emplace_back([&] {
          try {
            journal = std::make_unique<baton::RunJournal>(place.path() / "run", baton::JournalHead{},
                                                          baton::RunJournal::Begun{no_turns, no_calls}, nullptr);
          } catch (const baton::InputError&) {
            ++refused;
          }
        });
      }
    }
    CHECK(refused == 3);
    CHECK_THROWS_WITH(baton::RunJournal(place.path() / "run", baton::JournalHead{}, std::nullopt, nullptr),
                      Contains("is being written by another run"));
    journals.clear();
    CHECK(files_in(place.path()) == std::set<std::string>{"run.journal"});
  }
}

}  // namespace record_test
