// SPDX-License-Identifier: Apache-2.0
// The C interface: steps that ask.
#include "tests/sdk/asking_team.h"
#include "tests/sdk/c_handles.h"

namespace c_ask_test {

namespace {

using namespace baton::test::c;
using baton::test::asking;

struct Answers {
  int asked = 0;
  std::string question, agent;
};

const char* answer_yes(const baton_event* asked, void* user_data) {
  auto& answers = *static_cast<Answers*>(user_data);
  ++answers.asked;
  answers.question = baton_event_text(asked, nullptr);
  answers.agent = baton_event_agent(asked);
  CHECK(baton_event_get_type(asked) == BATON_EVENT_ASKED);
  return "yes";
}

const char* no_answer(const baton_event*, void*) { return nullptr; }

}  // namespace

TEST_CASE("C: a step that asks") {
  static const auto engine = open_engine();
  const auto workflow = parse(asking().c_str());
  const baton_pair input = {"question", "What is 6 x 7?"}, answer = {"approval", "no"}, wrong = {"solver", "no"};
  const auto run = [&](const auto& change) {
    baton_run_options options;
    baton_run_options_init(&options, sizeof options);
    options.inputs = &input;
    options.input_count = 1;
    change(options);
    baton_run* started = nullptr;
    const Outcome began = outcome_of(baton_engine_start, &started, engine.get(), workflow.get(), &options);
    const Run owner(started);
    return began ? outcome_of(baton_run_wait, started, std::int64_t{-1}).status : began.status;
  };
  Answers answers;
  CHECK(run([&](baton_run_options& options) {
          options.on_ask = answer_yes;
          options.user_data = &answers;
        }) == BATON_OK);
  CHECK(answers.asked == 1);
  CHECK(answers.agent == "approval");
  CHECK(answers.question.starts_with("Right? "));
  CHECK(run([](baton_run_options&) {}) == BATON_SUSPENDED);
  CHECK(run([](baton_run_options& options) { options.on_ask = no_answer; }) == BATON_SUSPENDED);
  CHECK(run([&](baton_run_options& options) {
          options.answers = &answer;
          options.answer_count = 1;
        }) == BATON_OK);
  CHECK(run([&](baton_run_options& options) {
          options.answers = &wrong;
          options.answer_count = 1;
        }) == BATON_USAGE);
  CHECK(std::string(baton_status_name(BATON_SUSPENDED)) == "suspended");
}

}  // namespace c_ask_test
