// SPDX-License-Identifier: Apache-2.0
// Calls of a model that the host has to allow, and calls of a run that was interrupted.
#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <thread>

#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "tests/support/thread_time.h"
#include "workflows/run/executor.h"
#include "workflows/run/model_calls.h"

namespace baton::test::approval_test {
namespace {

using Catch::Matchers::Contains;
using namespace std::chrono_literals;

std::string call_of(const std::string& tool, const std::string& path) {
  return "<tool_call>\n{\"name\": \"" + tool + "\", \"arguments\": {\"path\": \"" + path + "\"}}\n</tool_call>";
}

/// An agent whose model writes these answers; `remove` and `list` are its tools.
struct Cleaner {
  explicit Cleaner(std::vector<std::string> texts, CallLimits limits = {.approve = true}) {
    engine = std::make_shared<ScriptedEngine>([texts = std::move(texts)](const std::string& prompt) {
      std::size_t answers = 0;  // so far, by what follows them
      for (std::size_t at = prompt.find("<|im_start|>assistant");
           (at = prompt.find("<|im_start|>assistant", at + 1)) != std::string::npos;)
        ++answers;
      return Scripted{.text = texts.at(answers)};
    });
    auto registry = std::make_shared<ToolRegistry>();
    const char* schema = R"({"properties": {"path": {"type": "string"}}, "required": ["path"]})";
    std::vector<CallableTool> tools;
    for (const std::string name : {"remove", "list"}) {
      registry->add(std::make_shared<FunctionTool>(name, [this, name](const ToolCall& call) {
        made.push_back(name + " " + call.arguments);
        return ToolResult{true, "done " + call.arguments, ""};
      }));
      tools.push_back({{name, "Does it.", schema}, {}, nullptr});
    }
    builder.tools = registry;
    builder.add("a", {}).calls = std::make_shared<const CallableTools>(std::move(tools), limits, nullptr);
  }

  RunRecord run(const std::function<void(RunRequest&)>& change = {}) {
    RunRequest request = builder.request(engine);
    request.on_event = [this](const Event& event) {
      events.push_back(event);
      if (const auto* one = std::get_if<Asked>(&event)) asked.push_back(*one);
    };
    if (change) change(request);
    return run_plan(request);
  }

  /// With a host that answers so.
  RunRecord run_with(const std::string& answer) {
    return run([&](RunRequest& request) {
      request.on_ask = [answer](const Asked&, const std::stop_token&) { return std::optional(answer); };
    });
  }

  PlanBuilder builder;
  std::shared_ptr<ScriptedEngine> engine;
  std::vector<std::string> made;
  std::vector<Event> events;
  std::vector<Asked> asked;
};

/// What the journal of a run has of its calls when these events have happened.
std::vector<EarlierCall> journal_of(const std::vector<Event>& events, std::size_t count) {
  std::vector<EarlierCall> calls;
  const auto at = [&](const std::string& turn, int call, const std::string& tool,
                      const std::string& arguments) -> EarlierCall& {
    for (EarlierCall& one : calls) {
      if (one.turn == turn && one.call == call) return one;
    }
    return calls.emplace_back(EarlierCall{turn, call, tool, arguments});
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (const auto* one = std::get_if<Asked>(&events[i]))
      at(one->turn.substr(0, one->turn.find('/')), std::stoi(one->turn.substr(one->turn.find('/') + 1)), one->tool,
         one->arguments);
    if (const auto* one = std::get_if<CallDecided>(&events[i]))
      at(one->turn, one->call, one->tool, one->arguments).answer = one->answer;
    if (const auto* one = std::get_if<CallBegun>(&events[i]))
      at(one->turn, one->call, one->tool, one->arguments).begun = true;
    if (const auto* one = std::get_if<ToolCalled>(&events[i]); one != nullptr && one->call > 0) {
      EarlierCall& call = at(one->turn, one->call, one->tool, one->arguments);
      call.begun = true;
      call.result = ToolResult{one->ok, one->result, one->code};
    }
  }
  return calls;
}

TEST_CASE("the host's words are read as a decision") {
  CHECK(read_decision("allow").allowed);
  CHECK(read_decision(" yes\n").allowed);
  CHECK(!read_decision("deny").allowed);
  CHECK(!read_decision("no").allowed);
  CHECK(!read_decision("").allowed);
  CHECK(read_decision("deny: not today").reason == "not today");
  CHECK(read_decision("use another file").reason == "use another file");
  CHECK(read_decision(R"({"path": "b"})").arguments == R"({"path": "b"})");
  CHECK(read_decision(R"({"path": "b"})").allowed);
  CHECK(!read_decision("[1]").allowed);
  CHECK(read_decision("{\"path\": ").reason == "{\"path\":");
}

TEST_CASE("a call that the host allows is made") {
  Cleaner cleaner({call_of("remove", "home"), "Done."});
  const RunRecord record = cleaner.run_with("allow");
  CHECK(record.state == RunState::ok);
  CHECK(record.agents[0].output == "Done.");
  CHECK(cleaner.made == std::vector<std::string>{R"(remove {"path":"home"})"});
  REQUIRE(cleaner.asked.size() == 1);
  CHECK(cleaner.asked[0].turn == "a/1");
  CHECK(cleaner.asked[0].tool == "remove");
  CHECK(cleaner.asked[0].arguments == R"({"path":"home"})");
  CHECK_THAT(cleaner.asked[0].question, Contains("agent 'a' wants to call remove"));
}

TEST_CASE("a call that the host denies is not made, and the model reads why") {
  Cleaner cleaner({call_of("remove", "home"), "A pity."}, {.fail = true, .approve = true});
  const RunRecord record = cleaner.run_with("deny: nobody asked");
  CHECK(record.state == RunState::ok);
  CHECK(record.agents[0].output == "A pity.");
  CHECK(cleaner.made.empty());
  REQUIRE(record.agents[0].tools.size() == 1);
  CHECK(!record.agents[0].tools[0].ok);
  CHECK(record.agents[0].tools[0].result == "error: the user does not allow this call: nobody asked");
  CHECK_THAT(cleaner.engine->prompts[1], Contains("does not allow this call: nobody asked"));
}

TEST_CASE("the host may change the arguments, within the tool's schema") {
  Cleaner cleaner({call_of("remove", "home"), "Done."});
  RunRecord record = cleaner.run_with(R"({"path": "tmp"})");
  CHECK(cleaner.made == std::vector<std::string>{R"(remove {"path": "tmp"})"});
  CHECK(record.agents[0].tools[0].arguments == R"({"path": "tmp"})");
  CHECK_THAT(cleaner.engine->prompts[1], Contains("(the user changed the arguments to {\"path\": \"tmp\"})"));

  Cleaner wrong({call_of("remove", "home"), "Done."});
  record = wrong.run_with(R"({"path": 3})");
  CHECK(wrong.made.empty());
  CHECK(record.state == RunState::ok);
  CHECK(std::any_of(wrong.events.begin(), wrong.events.end(), [](const Event& event) {
    const auto* warning = std::get_if<Warning>(&event);
    return warning != nullptr && warning->message.find("do not fit its schema") != std::string::npos;
  }));
}

TEST_CASE("only the calls that need it are asked about") {
  Cleaner cleaner({call_of("list", "x"), call_of("remove", "x"), "Done."}, {.approve_tools = {"remove"}});
  cleaner.run_with("allow");
  CHECK(cleaner.made.size() == 2);
  REQUIRE(cleaner.asked.size() == 1);
  CHECK(cleaner.asked[0].tool == "remove");
  CHECK(cleaner.asked[0].turn == "a/2");

  Cleaner never({call_of("remove", "x"), "Done."}, {});
  never.run();
  CHECK(never.asked.empty());
  CHECK(never.made.size() == 1);

  Cleaner unknown({call_of("sing", "x"), "Done."});
  unknown.run_with("allow");
  CHECK(unknown.asked.empty());  // there is nothing to allow
}

TEST_CASE("without an answer a run is suspended with all its questions, and goes on with the answers") {
  const std::vector<std::string> texts = {call_of("remove", "x") + "\n" + call_of("list", "y"), "Done."};
  Cleaner cleaner(texts);
  const RunRecord record = cleaner.run();
  CHECK(record.state == RunState::suspended);
  CHECK(record.error == "the answer to 'a' is missing");
  CHECK(cleaner.made.empty());
  REQUIRE(cleaner.asked.size() == 2);
  CHECK(cleaner.asked[1].turn == "a/2");

  Cleaner later(texts);
  const RunRecord resumed = later.run([&](RunRequest& request) {
    request.calls = journal_of(cleaner.events, cleaner.events.size());
    request.answers = {{"a/1", "deny"}, {"a/2", "allow"}};
  });
  CHECK(resumed.state == RunState::ok);
  CHECK(later.asked.empty());
  CHECK(later.made == std::vector<std::string>{R"(list {"path":"y"})"});

  // One answer is not enough, and the one that there is is not asked for again.
  Cleaner half(texts);
  const RunRecord again = half.run([&](RunRequest& request) { request.answers = {{"a/1", "allow"}}; });
  CHECK(again.state == RunState::suspended);
  REQUIRE(half.asked.size() == 1);
  CHECK(half.asked[0].turn == "a/2");
}

TEST_CASE("an answer counts for the call that it was given for") {
  Cleaner cleaner({call_of("remove", "home"), "Done."});
  const RunRecord record = cleaner.run([&](RunRequest& request) {
    request.calls = {{"a", 1, "list", R"({"path":"home"})"}};  // what the run before asked about
    request.answers = {{"a/1", "allow"}};
  });
  CHECK(record.state == RunState::suspended);
  CHECK(cleaner.made.empty());
  CHECK(cleaner.asked.size() == 1);
}

TEST_CASE("a run that is interrupted anywhere repeats no call and no question") {
  const std::vector<std::string> texts = {call_of("remove", "x") + "\n" + call_of("list", "y"), call_of("remove", "z"),
                                          "Done."};
  Cleaner first(texts);
  REQUIRE(first.run_with("allow").state == RunState::ok);
  REQUIRE(first.made.size() == 3);
  for (std::size_t count = 0; count <= first.events.size(); ++count) {
    INFO("interrupted behind event " << count);
    std::map<std::string, int> begun, asked;
    for (std::size_t i = 0; i < count; ++i) {
      if (const auto* one = std::get_if<CallBegun>(&first.events[i])) ++begun[one->tool + " " + one->arguments];
      if (const auto* one = std::get_if<CallDecided>(&first.events[i])) ++asked[one->tool + " " + one->arguments];
    }
    Cleaner second(texts);
    const RunRecord record = second.run([&](RunRequest& request) {
      request.calls = journal_of(first.events, count);
      request.on_ask = [&](const Asked& one, const std::stop_token&) {
        ++asked[one.tool + " " + one.arguments];
        return std::optional<std::string>("allow");
      };
    });
    CHECK(record.state == RunState::ok);
    CHECK(record.agents[0].output == "Done.");
    for (const std::string& call : second.made) ++begun[call];
    CHECK(begun.size() == 3);
    for (const auto& [call, times] : begun) CHECK(times == 1);
    CHECK(asked.size() == 3);
    for (const auto& [call, times] : asked) CHECK(times == 1);
  }
}

TEST_CASE("a call whose outcome is unknown is not repeated unasked, and the model reads so") {
  Cleaner cleaner({call_of("remove", "x"), "Done."}, {});
  const RunRecord record = cleaner.run([](RunRequest& request) {
    request.calls = {{"a", 1, "remove", R"({"path":"x"})", {}, true}};
  });
  CHECK(record.state == RunState::ok);
  CHECK(cleaner.made.empty());
  CHECK_THAT(cleaner.engine->prompts[1], Contains("Its outcome is unknown"));
  // The same call again is a new one.
  Cleaner again({call_of("remove", "x"), call_of("remove", "x"), "Done."}, {.repeat = true});
  again.run([](RunRequest& request) { request.calls = {{"a", 1, "remove", R"({"path":"x"})", {}, true}}; });
  CHECK(again.made.size() == 1);
}

TEST_CASE("a host that fails, or has no answer, makes no call") {
  Cleaner throws({call_of("remove", "x"), "Done."});
  RunRecord record = throws.run([](RunRequest& request) {
    request.on_ask = [](const Asked&, const std::stop_token&) -> std::optional<std::string> {
      throw std::runtime_error("no terminal");
    };
  });
  CHECK(record.state == RunState::failed);
  CHECK_THAT(record.error, Contains("no terminal"));
  CHECK(throws.made.empty());

  Cleaner silent({call_of("remove", "x"), "Done."});
  record = silent.run([](RunRequest& request) {
    request.on_ask = [](const Asked&, const std::stop_token&) { return std::optional<std::string>(); };
  });
  CHECK(record.state == RunState::suspended);
  CHECK(silent.made.empty());
}

TEST_CASE("the questions of all agents wait side by side") {
  constexpr int kAgents = 24;
  Cleaner cleaner({call_of("remove", "x"), "Done."});
  const auto calls = cleaner.builder.plan.turns[0].calls;
  for (int i = 1; i < kAgents; ++i) cleaner.builder.add("a" + std::to_string(i), {}).calls = calls;
  std::atomic<int> waiting = 0;
  const RunRecord record = cleaner.run([&](RunRequest& request) {
    request.on_ask = [&](const Asked&, const std::stop_token&) {
      ++waiting;
      for (int i = 0; i < 2000 && waiting < kAgents; ++i) std::this_thread::sleep_for(10ms);
      return std::optional<std::string>("deny");
    };
  });
  CHECK(record.state == RunState::ok);
  CHECK(waiting == kAgents);
  for (const AgentRecord& agent : record.agents) CHECK(agent.output == "Done.");
}

TEST_CASE("the time of an attempt and of the run stand still while the host decides, and a stop ends the wait") {
  const auto limit = std::chrono::milliseconds(static_cast<int>(1000 * slowdown()));
  RunRecord record;
  for (const bool whole : {false, true}) {
    INFO("of the run " << whole);
    Cleaner slow({call_of("remove", "x"), "Done."});
    if (!whole) slow.builder.plan.turns[0].timeout = limit;
    record = slow.run([&](RunRequest& request) {
      if (whole) request.timeout = limit;
      request.on_ask = [&](const Asked&, const std::stop_token&) {
        std::this_thread::sleep_for(limit + 300ms);
        return std::optional<std::string>("allow");
      };
    });
    CHECK(record.state == RunState::ok);
    CHECK(slow.made.size() == 1);
  }

  Cleaner stopped({call_of("remove", "x"), "Done."});
  std::stop_source stop;
  record = stopped.run([&](RunRequest& request) {
    request.stop = stop.get_token();
    request.on_ask = [&](const Asked&, const std::stop_token& asked) {
      stop.request_stop();
      while (!asked.stop_requested()) std::this_thread::sleep_for(1ms);
      return std::optional<std::string>("allow");
    };
  });
  CHECK(record.state == RunState::cancelled);
  CHECK(stopped.made.empty());
}

}  // namespace
}  // namespace baton::test::approval_test
