// SPDX-License-Identifier: Apache-2.0
// The C interface: sessions.
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "tests/sdk/c_handles.h"
#include "tests/support/temp_folder.h"

namespace c_session_test {

namespace {

using namespace baton::test::c;
using Json = nlohmann::json;
using Session = std::unique_ptr<baton_session, Free<baton_session_free>>;

const Engine& engine() {
  static const Engine shared = open_engine();
  return shared;
}

Session begin(const Workflow& workflow) {
  baton_session* session = nullptr;
  REQUIRE(outcome_of(baton_session_create, &session, engine().get(), workflow.get()));
  return Session(session);
}

/// The record of a run of the session.
Json say(const Session& session, const char* text) {
  const baton_pair input = {"question", text};
  baton_run_options options;
  baton_run_options_init(&options, sizeof options);
  options.inputs = &input;
  options.input_count = 1;
  baton_run* started = nullptr;
  REQUIRE(outcome_of(baton_session_start, &started, session.get(), &options));
  const Run run(started);
  CHECK(outcome_of(baton_run_wait, started, std::int64_t{-1}));
  char* json = nullptr;
  REQUIRE(outcome_of(baton_run_record, &json, started));
  const Text text_of_record(json);
  return Json::parse(json);
}

Json messages(const Session& session, const char* agent) {
  char* json = nullptr;
  REQUIRE(outcome_of(baton_session_messages, &json, session.get(), agent));
  const Text text(json);
  return Json::parse(json);
}

}  // namespace

TEST_CASE("C: a session remembers, goes back, forks, and is written and read") {
  const baton::test::TempFolder folder;
  const std::string file = (folder.path() / "talk.session").string();
  const auto workflow = parse(team(6));
  const Session session = begin(workflow);
  CHECK(baton_session_runs(session.get()) == 0);
  CHECK(say(session, "Mia has 12 apples.")["agents"][0]["history"].is_null());
  const Json second = say(session, "How many?");
  CHECK(second["agents"][0]["history"]["runs"] == 1);
  CHECK(messages(session, "solver").back()["text"] == second["agents"][0]["output"]);
  CHECK(baton_session_rewindable(session.get()) == 2);
  CHECK(outcome_of(baton_session_rewind, session.get(), 1));
  CHECK(outcome_of(baton_session_rewind, session.get(), 2).status == BATON_USAGE);
  baton_session* forked = nullptr;
  REQUIRE(outcome_of(baton_session_fork, &forked, session.get()));
  const Session other(forked);
  REQUIRE(outcome_of(baton_session_save, session.get(), file.c_str()));
  baton_session* read = nullptr;
  REQUIRE(outcome_of(baton_session_restore, &read, engine().get(), workflow.get(), file.c_str()));
  const Session restored(read);
  for (const Session* one : {&session, &other, &restored}) {
    CHECK(baton_session_runs(one->get()) == 1);
    CHECK(say(*one, "How many?")["agents"][0]["output"] == second["agents"][0]["output"]);
    CHECK(baton_session_runs(one->get()) == 2);
  }
  std::filesystem::resize_file(file, 100);
  baton_session* broken = nullptr;
  CHECK(outcome_of(baton_session_restore, &broken, engine().get(), workflow.get(), file.c_str()).status == BATON_USAGE);
  CHECK(broken == nullptr);
  CHECK(outcome_of(baton_session_save, session.get(), (file + "/x").c_str()).status == BATON_RESOURCES);
  char* json = nullptr;
  CHECK(outcome_of(baton_session_messages, &json, session.get(), "nobody").status == BATON_USAGE);
}

TEST_CASE("C: a session and NULL") {
  const auto workflow = parse(team(4));
  const Session session = begin(workflow);
  baton_session* none = nullptr;
  baton_run* run = nullptr;
  char* json = nullptr;
  for (const auto& outcome : std::initializer_list<Outcome>{
           outcome_of(baton_session_create, static_cast<baton_session**>(nullptr), engine().get(), workflow.get()),
           outcome_of(baton_session_create, &none, static_cast<baton_engine*>(nullptr), workflow.get()),
           outcome_of(baton_session_create, &none, engine().get(), static_cast<baton_workflow*>(nullptr)),
           outcome_of(baton_session_restore, &none, engine().get(), workflow.get(), static_cast<const char*>(nullptr)),
           outcome_of(baton_session_restore, &none, engine().get(), workflow.get(), "/nowhere"),
           outcome_of(baton_session_start, static_cast<baton_run**>(nullptr), session.get(), nullptr),
           outcome_of(baton_session_start, &run, none, nullptr),
           outcome_of(baton_session_start, &run, session.get(), nullptr),  // the input is missing
           outcome_of(baton_session_rewind, none, 0), outcome_of(baton_session_rewind, session.get(), -1),
           outcome_of(baton_session_fork, static_cast<baton_session**>(nullptr), session.get()),
           outcome_of(baton_session_fork, &none, none),
           outcome_of(baton_session_messages, static_cast<char**>(nullptr), session.get(), "solver"),
           outcome_of(baton_session_messages, &json, none, "solver"),
           outcome_of(baton_session_messages, &json, session.get(), static_cast<const char*>(nullptr)),
           outcome_of(baton_session_save, none, "file"),
           outcome_of(baton_session_save, session.get(), static_cast<const char*>(nullptr))}) {
    CHECK(outcome.status == BATON_USAGE);
    CHECK_FALSE(outcome.message().empty());
  }
  CHECK(baton_session_runs(nullptr) == 0);
  CHECK(baton_session_rewindable(nullptr) == 0);
  baton_session_free(nullptr);
}

}  // namespace c_session_test
