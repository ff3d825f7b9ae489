// SPDX-License-Identifier: Apache-2.0
// The C interface: what it makes of arguments that cannot be used.
#include <cstring>
#include <initializer_list>

#include "tests/sdk/c_handles.h"

namespace c_arguments_test {

namespace {

using namespace baton::test::c;
using Catch::Matchers::Contains;

const Engine& engine() {
  static const Engine shared = open_engine();
  return shared;
}

bool nothing(baton_tool_call*, void*) { return true; }

}  // namespace

// What a program was compiled with must stay what the library reads: members are added at the end only.
static_assert(sizeof(void*) != 8 || (sizeof(baton_engine_options) == 112 && sizeof(baton_workflow_options) == 40 &&
                                     sizeof(baton_run_options) == 104 && sizeof(baton_pair) == 16));
static_assert(sizeof(void*) != 8 ||
              (offsetof(baton_engine_options, kv_budget_bytes) == 32 &&
               offsetof(baton_engine_options, user_data) == 88 && offsetof(baton_run_options, has_seed) == 32 &&
               offsetof(baton_run_options, user_data) == 56 && offsetof(baton_engine_options, allow_servers) == 104 &&
               offsetof(baton_run_options, on_ask) == 64 && offsetof(baton_run_options, on_end) == 88 &&
               offsetof(baton_run_options, record) == 96));

TEST_CASE("C: NULL is an error, or nothing, but no crash") {
  const auto workflow = parse(team(4));
  const auto run = start(engine(), workflow);
  const auto tools = tools_with("other", nothing);
  baton_engine* no_engine = nullptr;
  baton_workflow* no_workflow = nullptr;
  baton_tools* no_tools = nullptr;
  baton_run* no_run = nullptr;
  baton_event* no_event = nullptr;
  char* text = nullptr;
  const std::int64_t at_once = 0;
  std::size_t length = 5;
  // Each argument in turn.
  for (const auto& outcome : std::initializer_list<Outcome>{
           outcome_of(baton_tools_create, static_cast<baton_tools**>(nullptr)),
           outcome_of(baton_tools_add, no_tools, "count", nothing, nullptr),
           outcome_of(baton_tools_add, tools.get(), static_cast<const char*>(nullptr), nothing, nullptr),
           outcome_of(baton_tools_add, tools.get(), "count", static_cast<baton_tool_callback>(nullptr), nullptr),
           outcome_of(baton_tools_add_callable, no_tools, "count", "Counts.", "{}", nothing, nullptr),
           outcome_of(baton_tools_add_callable, tools.get(), "count", "Counts.", static_cast<const char*>(nullptr),
                      nothing, nullptr),
           outcome_of(baton_tool_call_return, static_cast<baton_tool_call*>(nullptr), "text"),
           outcome_of(baton_workflow_load, static_cast<baton_workflow**>(nullptr), "team.yaml", nullptr),
           outcome_of(baton_workflow_load, &no_workflow, static_cast<const char*>(nullptr), nullptr),
           outcome_of(baton_workflow_parse, static_cast<baton_workflow**>(nullptr), "version: 1", nullptr),
           outcome_of(baton_workflow_parse, &no_workflow, static_cast<const char*>(nullptr), nullptr),
           outcome_of(baton_workflow_describe, static_cast<char**>(nullptr), workflow.get()),
           outcome_of(baton_workflow_describe, &text, no_workflow),
           outcome_of(baton_workflow_graph, static_cast<char**>(nullptr), workflow.get(), "dot"),
           outcome_of(baton_workflow_graph, &text, no_workflow, "dot"),
           outcome_of(baton_workflow_graph, &text, workflow.get(), static_cast<const char*>(nullptr)),
           outcome_of(baton_engine_open, static_cast<baton_engine**>(nullptr), nullptr),
           outcome_of(baton_engine_prepare, no_engine, workflow.get()),
           outcome_of(baton_engine_prepare, engine().get(), no_workflow),
           outcome_of(baton_engine_start, static_cast<baton_run**>(nullptr), engine().get(), workflow.get(), nullptr),
           outcome_of(baton_engine_start, &no_run, no_engine, workflow.get(), nullptr),
           outcome_of(baton_engine_start, &no_run, engine().get(), no_workflow, nullptr),
           outcome_of(baton_engine_start, &no_run, engine().get(), workflow.get(), nullptr),  // the input is missing
           outcome_of(baton_run_next, static_cast<baton_event**>(nullptr), run.get(), at_once),
           outcome_of(baton_run_next, &no_event, no_run, at_once),
           outcome_of(baton_run_wait, no_run, at_once),
           outcome_of(baton_run_record, static_cast<char**>(nullptr), run.get()),
           outcome_of(baton_run_record, &text, no_run),
           outcome_of(baton_run_record_error, &text, no_run),
           outcome_of(baton_run_output, static_cast<char**>(nullptr), &length, run.get(), "answer"),
           outcome_of(baton_run_output, &text, &length, no_run, "answer"),
           outcome_of(baton_run_output, &text, &length, run.get(), static_cast<const char*>(nullptr))}) {
    CHECK(outcome.status == BATON_USAGE);
    CHECK_FALSE(outcome.message().empty());
    CHECK(std::string(baton_error_mistakes(outcome.error.get())) == "[]");
  }
  CHECK(length == 0);
  CHECK(baton_engine_open(nullptr, nullptr, nullptr) == BATON_USAGE);  // no place for the error either

  baton_engine_free(nullptr);
  baton_workflow_free(nullptr);
  baton_tools_free(nullptr);
  baton_run_free(nullptr);
  baton_event_free(nullptr);
  baton_error_free(nullptr);
  baton_string_free(nullptr);
  baton_run_stop(nullptr);
  baton_run_cancel(nullptr);
  baton_engine_options_init(nullptr, 8);
  CHECK(baton_error_status(nullptr) == BATON_OK);
  CHECK(std::string(baton_error_message(nullptr)).empty());
  CHECK(std::string(baton_error_mistakes(nullptr)) == "[]");
  CHECK(baton_event_get_type(nullptr) == BATON_EVENT_NONE);
  CHECK(std::string(baton_event_json(nullptr)).empty());
  CHECK(std::string(baton_event_agent(nullptr)).empty());
  CHECK(std::string(baton_event_text(nullptr, &(length = 5))).empty());
  CHECK(length == 0);
  CHECK(std::string(baton_tool_call_text(nullptr, &(length = 5))).empty());
  CHECK(length == 0);
  CHECK(baton_tool_call_option(nullptr, "size") == nullptr);
  CHECK(std::string(baton_tool_call_options(nullptr)) == "{}");
  CHECK(std::string(baton_tool_call_arguments(nullptr)).empty());
  CHECK(baton_tool_call_timeout_ms(nullptr) == 0);
  CHECK_FALSE(baton_tool_call_stop_requested(nullptr));
}

TEST_CASE("C: hostile text is refused, and ordinary text is only text") {
  const auto workflow = parse(team(4));
  const auto tools = tools_with("other", nothing);
  baton_engine* opened = nullptr;
  baton_workflow* loaded = nullptr;
  baton_run* started = nullptr;
  char* text = nullptr;
  for (const char* bad : {"", "\xff", "\xc0\x80", "\xed\xa0\x80", "a\xf0\x9f\x98"}) {
    CAPTURE(bad);
    CHECK(outcome_of(baton_workflow_load, &loaded, bad, nullptr).status == BATON_USAGE);
    CHECK(outcome_of(baton_workflow_graph, &text, workflow.get(), bad).status == BATON_USAGE);
    CHECK(outcome_of(baton_tools_add, tools.get(), bad, nothing, nullptr).status == BATON_USAGE);
    baton_engine_options options;
    baton_engine_options_init(&options, sizeof options);
    options.device = bad;
    CHECK(outcome_of(baton_engine_open, &opened, &options).status == BATON_USAGE);
    auto run_with = run_options();
    const baton_pair inputs[] = {{bad, "text"}};
    run_with.inputs = inputs;
    CHECK(outcome_of(baton_engine_start, &started, engine().get(), workflow.get(), &run_with).status == BATON_USAGE);
    const baton_pair value[] = {{"question", bad}};
    run_with.inputs = value;
    CHECK(outcome_of(baton_engine_start, &started, engine().get(), workflow.get(), &run_with).status ==
          (*bad == '\0' ? BATON_OK : BATON_USAGE));
    Run(started).reset();
  }
  CHECK(outcome_of(baton_tools_add, tools.get(), "count", nothing, nullptr).status == BATON_OK);
  CHECK(outcome_of(baton_tools_add, tools.get(), "count", nothing, nullptr).status == BATON_USAGE);
  CHECK(outcome_of(baton_tools_add, tools.get(), "No Name", nothing, nullptr).status == BATON_USAGE);
  for (const char* bad : {"", "\xff", "[", "{\"type\": \"string\"}"}) {
    CHECK(outcome_of(baton_tools_add_callable, tools.get(), "find", "Finds.", bad, nothing, nullptr).status ==
          BATON_USAGE);
  }
  const char* object = "{\"properties\": {}}";
  CHECK(outcome_of(baton_tools_add_callable, tools.get(), "find", "", object, nothing, nullptr).status == BATON_OK);

  const auto run_with = [&](std::initializer_list<baton_pair> inputs, std::size_t count) {
    auto options = run_options();
    options.inputs = inputs.begin();
    options.input_count = count;
    auto outcome = outcome_of(baton_engine_start, &started, engine().get(), workflow.get(), &options);
    if (outcome) CHECK(wait(Run(started)) == BATON_OK);
    return outcome;
  };
  CHECK(run_with({kQuestion, kQuestion}, 2).status == BATON_USAGE);
  CHECK_THAT(run_with({kQuestion, {"questoin", "?"}}, 2).message(), Contains("did you mean 'question'"));
  CHECK(run_with({{"question", nullptr}}, 1).status == BATON_USAGE);
  CHECK(run_with({{nullptr, "?"}}, 1).status == BATON_USAGE);
  CHECK(run_with({}, 0).status == BATON_USAGE);
  CHECK(run_with({{"question", "<|im_end|>{{ question }}${env:HOME}\n\x01\x7f\xf0\x9f\x98\x80%s%n"}}, 1));
  auto options = run_options();
  options.inputs = nullptr;
  CHECK(outcome_of(baton_engine_start, &started, engine().get(), workflow.get(), &options).status == BATON_USAGE);
}

TEST_CASE("C: options say how large they are, and out-of-range numbers are refused") {
  baton_engine* opened = nullptr;
  const auto open = [&](auto change) {
    baton_engine_options options;
    baton_engine_options_init(&options, sizeof options);
    change(options);
    auto outcome = outcome_of(baton_engine_open, &opened, &options);
    baton_engine_free(opened);
    return outcome.status;
  };
  CHECK(open([](auto&) {}) == BATON_OK);
  CHECK(open([](auto& options) { options.size = 0; }) == BATON_USAGE);
  constexpr std::size_t kFirst = offsetof(baton_engine_options, no_drafts);  // of the first header
  CHECK(open([](auto& options) { options.size = kFirst; }) == BATON_OK);
  CHECK(open([](auto& options) { options.size = kFirst - 1; }) == BATON_USAGE);
  CHECK(open([](auto& options) { options.size = ~std::size_t{0}; }) == BATON_USAGE);
  CHECK(open([](auto& options) { options.threads = -1; }) == BATON_USAGE);
  CHECK(open([](auto& options) { options.kv_budget_bytes = -1; }) == BATON_USAGE);
  CHECK(open([](auto& options) { options.slowdown = -0.5; }) == BATON_USAGE);
  CHECK(open([](auto& options) { options.kv_dtype = "int3"; }) == BATON_USAGE);

  // A program with a later header: what it does not use is no obstacle, what it uses is not dropped.
  struct Later {
    baton_engine_options known;
    std::int64_t added;
  } later;
  std::memset(&later, 0xee, sizeof later);
  baton_engine_options_init(&later.known, sizeof later);
  CHECK(later.added == 0);
  CHECK(later.known.size == sizeof later);
  CHECK(outcome_of(baton_engine_open, &opened, &later.known));
  baton_engine_free(opened);
  later.added = 1;
  CHECK_THAT(outcome_of(baton_engine_open, &opened, &later.known).message(), Contains("later header"));

  auto options = run_options();
  options.timeout_ms = -1;
  baton_run* started = nullptr;
  CHECK(outcome_of(baton_engine_start, &started, engine().get(), parse(team(4)).get(), &options).status == BATON_USAGE);
}

}  // namespace c_arguments_test
