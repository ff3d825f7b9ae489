// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/executor.h"

#include <baton/errors.h>

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cmath>
#include <future>
#include <set>
#include <thread>

#include "engine/base/errors.h"
#include "tests/support/plans.h"
#include "workflows/run/record.h"

namespace executor_test {

using namespace baton;
using namespace baton::test;

namespace {

/// Answers "<agent>!".
ScriptedEngine::Script named_answers() {
  return [](const std::string& prompt) { return Scripted{.text = agent_of(prompt) + "!"}; };
}

const AgentRecord& record_of(const RunRecord& record, const std::string& agent, int round = 1) {
  for (const AgentRecord& found : record.agents) {
    if (found.agent == agent && found.round == round) return found;
  }
  throw std::invalid_argument(agent);
}

std::vector<std::string> types_of(const std::vector<Event>& events) {
  std::vector<std::string> types;
  for (const Event& event : events) {
    const std::string json = to_json(event);
    const std::size_t begin = json.find(":\"") + 2;
    types.push_back(json.substr(begin, json.find('"', begin) - begin));
  }
  return types;
}

}  // namespace

TEST_CASE("a chain hands each output to the next agent") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  builder.add("c", {1});
  builder.output("answer", "agent_c_current");
  auto engine = std::make_shared<ScriptedEngine>(named_answers());
  RunRequest request = builder.request(engine);
  std::vector<Event> events;
  request.on_event = [&](const Event& event) { events.push_back(event); };

  const RunRecord record = run_plan(request);

  CHECK(record.state == RunState::ok);
  CHECK(record.outputs == NamedTexts{{"answer", "c!"}});
  REQUIRE(engine->prompts.size() == 3);
  CHECK(engine->prompts[1] == "<|im_start|>user\nrole:b|why?|a!|<|im_end|>\n<|im_start|>assistant\n");
  const AgentRecord& b = record_of(record, "b");
  CHECK(b.role == "role of b");
  CHECK(b.state == TurnState::ok);
  CHECK(b.finish_reason == FinishReason::eos);
  CHECK(b.output_tokens == 2);
  CHECK(b.kv.entries == 2 * b.prompt_tokens);
  CHECK(b.kv.computed == b.kv.entries);
  REQUIRE(b.slots.size() == 2);
  CHECK(b.slots[1].name == "agent_a_current");
  CHECK(b.slots[1].tokens == 2);
  CHECK(b.slots[1].recomputed_tokens == 2);
  CHECK(b.slots[1].method == "full");
  CHECK(record.memory.weights_bytes == 1000);
  CHECK(record.model_fingerprint == "toy-1");
  CHECK(types_of(events) == std::vector<std::string>{"run_started", "agent_started", "prefill", "token", "token",
                                                     "agent_finished", "agent_started", "relayed", "prefill", "token",
                                                     "token", "agent_finished", "agent_started", "relayed", "prefill",
                                                     "token", "token", "agent_finished", "run_finished"});
}

TEST_CASE("outputs that name a long text very often end the run with an error") {
  PlanBuilder builder;
  builder.add("a", {});
  for (int i = 0; i < 70; ++i) builder.output("answer" + std::to_string(i), "agent_a_current");
  auto engine =
      std::make_shared<ScriptedEngine>([](const std::string&) { return Scripted{.text = std::string(1 << 20, 'x')}; });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record.state == RunState::failed);
  CHECK(record.error == "the outputs of the workflow have more than 64 MiB");
  CHECK(record.outputs.empty());
  CHECK(record.agents[0].output.size() == 1 << 20);
}

TEST_CASE("ids that were generated move on as they are, role markers move on as text") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  builder.add("c", {1});
  auto engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
    Scripted answer;
    answer.tokens = agent_of(prompt) == "a" ? std::vector<TokenId>{'x', 'y'} : std::vector<TokenId>{'x', 258, 'y'};
    return answer;
  });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record_of(record, "b").slots[1].tokens == 2);
  CHECK(record_of(record, "b").output == "xy");
  CHECK(record_of(record, "c").slots[1].tokens == 2);  // the text, without the marker
}

TEST_CASE("inputs are completed once: given texts, defaults, and empty texts for what nobody has to give") {
  PlanBuilder builder;
  for (const char* name : {"tone", "hint"}) builder.spec.inputs.emplace_back().name = name;
  builder.spec.inputs[1].default_value = "calm";
  builder.spec.inputs[2].required = false;
  const auto complete = [&](const std::map<std::string, std::string>& given) {
    return complete_inputs(builder.spec, given);
  };
  using Texts = std::map<std::string, std::string>;
  CHECK(complete({{"question", "?"}}) == Texts{{"question", "?"}, {"tone", "calm"}, {"hint", ""}});
  CHECK(complete({{"question", ""}, {"tone", "loud"}}) == Texts{{"question", ""}, {"tone", "loud"}, {"hint", ""}});
  CHECK(complete_inputs(builder.spec, {}, MissingInputs::left_out) == Texts{{"tone", "calm"}});
  CHECK_THROWS_WITH(complete({{"colour", "red"}}), "unknown input 'colour'; the workflow has: question, tone, hint");
  CHECK_THROWS_WITH(complete({{"questoin", "?"}}),
                    "unknown input 'questoin'; the workflow has: question, tone, hint; did you mean 'question'?");
  CHECK_THROWS_AS(complete_inputs(builder.spec, {{"colour", "red"}}, MissingInputs::left_out), InputError);
  CHECK_THROWS_WITH(complete({{"question", "?"}, {"tone", "lo\xffud"}}), "input 'tone' is not valid UTF-8");
  builder.spec.inputs[2].required = true;
  try {
    complete({});
    FAIL("missing inputs were taken");
  } catch (const InputError& error) {
    CHECK(std::string(error.what()) == "missing input: 'question', 'hint'");
    CHECK(error.missing == std::vector<std::string>{"question", "hint"});
  }
  builder.spec.inputs.clear();
  CHECK_THROWS_WITH(complete({{"colour", "red"}}), "unknown input 'colour'; the workflow has: none");
}

TEST_CASE("inputs are plain text, and stand in the record in the order of the file") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.spec.inputs.emplace_back().name = "tone";
  builder.spec.inputs.back().default_value = "calm";
  builder.output("tone", "tone");
  auto engine = std::make_shared<ScriptedEngine>(named_answers());
  RunRequest request = builder.request(engine);
  request.inputs = complete_inputs(builder.spec, {{"question", "<|im_end|>"}});
  const RunRecord record = run_plan(request);
  CHECK(record.outputs.at("tone") == "calm");
  CHECK(record_of(record, "a").slots[0].tokens == 10);

  CHECK(record.inputs == NamedTexts{{"question", "<|im_end|>"}, {"tone", "calm"}});
  CHECK_THROWS_AS(run_plan(RunRequest{}), std::invalid_argument);
  CHECK(engine->prompts.size() == 1);
}

TEST_CASE("steps that need nothing of each other run together, up to max_parallel") {
  PlanBuilder builder;
  builder.add("a", {});
  for (int i = 0; i < 6; ++i) builder.add("p" + std::to_string(i), {0});
  builder.add("end", {1, 2, 3, 4, 5, 6});
  const auto most = [&](int limit) {
    builder.spec.topology.max_parallel = limit;
    auto engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
      return Scripted{.text = agent_of(prompt), .prefill = std::chrono::milliseconds(60)};
    });
    const RunRecord record = run_plan(builder.request(engine));
    CHECK(record.state == RunState::ok);
    CHECK(engine->prompts.back().find("|p0|p1|p2|p3|p4|p5|") != std::string::npos);
    return engine->most_at_once;
  };
  CHECK(most(0) == 6);
  CHECK(most(2) == 2);
  CHECK(most(1) == 1);
}

TEST_CASE("prompts that hand texts over reach the engine in the order of the plan") {
  PlanBuilder builder;
  builder.plan.reuse.record = true;
  PlannedTurn& slow = builder.add("slow", {});
  slow.messages[0].pieces.insert(slow.messages[0].pieces.begin() + 1, {std::string(4'000'000, 'x'), ""});
  builder.add("quick", {}).on_error = OnError::skip;
  const auto run = [&](Milliseconds of_quick, Milliseconds of_run) {
    builder.plan.turns[1].timeout = of_quick;
    auto engine = std::make_shared<ScriptedEngine>(named_answers());
    RunRequest request = builder.request(engine);
    request.timeout = of_run;
    const RunRecord record = run_plan(request);
    CHECK(engine->open() == 0);
    std::string agents;
    for (const std::string& prompt : engine->prompts) agents += agent_of(prompt) + " ";
    return std::pair(record, agents);
  };
  const auto [both, order] = run(Milliseconds(0), Milliseconds(0));
  CHECK(both.state == RunState::ok);
  CHECK(order == "slow quick ");
  const auto [late, alone] = run(Milliseconds(1), Milliseconds(0));  // over while it is held
  CHECK(late.state == RunState::ok);
  CHECK(record_of(late, "quick").error == "the attempt took longer than 1 ms");
  CHECK(alone == "slow ");
  const auto [over, nobody] = run(Milliseconds(0), Milliseconds(1));
  CHECK(over.state == RunState::timeout);
  CHECK(record_of(over, "quick").state != TurnState::ok);  // cancelled, or skipped where it had not begun
  CHECK(nobody.empty());
}

TEST_CASE("a debate over rounds reads the rounds before") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {});
  builder.add("a", {0, 1}, 2);
  builder.add("b", {0, 1}, 2);
  builder.add("judge", {2, 3}, 2).decides = true;
  builder.output("last", "agent_a_current");
  builder.output("before", "agent_a_history_1");
  auto engine =
      std::make_shared<ScriptedEngine>([count = std::map<std::string, int>()](const std::string& prompt) mutable {
        const std::string agent = agent_of(prompt);
        return Scripted{.text = agent + std::to_string(++count[agent])};
      });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(engine->prompts.back().find("role:judge|why?|a2|b2|") != std::string::npos);
  CHECK(record.outputs == NamedTexts{{"last", "a2"}, {"before", "a1"}});
  CHECK(record_of(record, "a", 2).slots[2].name == "agent_b_history_1");
  CHECK(record.agents.size() == 5);
}

TEST_CASE("until ends the rounds early, the deciding agent sees the last outputs there are") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0});
  builder.add("a", {1}, 2);
  builder.add("b", {2}, 2);
  builder.add("a", {3}, 3);
  builder.add("b", {4}, 3);
  builder.add("judge", {4, 5}, 3).decides = true;
  builder.spec.topology.until = ConditionSpec{.agent = "b", .matches = "CONFIRMED", .negate = false, .where = {}};
  builder.output("answer", "agent_judge_current");
  auto engine = std::make_shared<ScriptedEngine>([rounds = 0](const std::string& prompt) mutable {
    if (agent_of(prompt) == "b") return Scripted{.text = ++rounds == 2 ? "CONFIRMED" : "no"};
    return Scripted{.text = agent_of(prompt) + std::to_string(rounds)};
  });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record.state == RunState::ok);
  CHECK(engine->prompts.size() == 5);
  CHECK(record_of(record, "a", 3).state == TurnState::skipped);
  CHECK(record_of(record, "b", 3).state == TurnState::skipped);
  CHECK(engine->prompts.back().find("role:judge|why?|a1|CONFIRMED|") != std::string::npos);
  CHECK(record.outputs.at("answer") == "judge2");
}

TEST_CASE("for the deciding agent, history counts back from the last round that ran") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("a", {0}, 2);
  builder.add("a", {1}, 3);
  builder.add("a", {2}, 4);
  builder.add("judge", {0, 1, 2, 3}, 4).decides = true;  // names a_history_3, a_history_2, a_history_1, a_current
  const auto last_prompt = [&](const std::string& until) {
    builder.spec.topology.until = ConditionSpec{.agent = "a", .matches = until, .negate = false, .where = {}};
    const auto engine = std::make_shared<ScriptedEngine>([round = 0](const std::string& prompt) mutable {
      return Scripted{.text = agent_of(prompt) == "a" ? "a" + std::to_string(++round) : "done"};
    });
    const RunRecord record = run_plan(builder.request(engine));
    CHECK(record.state == RunState::ok);
    CHECK(record_of(record, "judge", 4).slots[1].tokens == (until == "never" ? 2 : 0));
    return engine->prompts.back();
  };
  CHECK_THAT(last_prompt("never"), Catch::Contains("role:judge|why?|a1|a2|a3|a4|"));
  CHECK_THAT(last_prompt("a3"), Catch::Contains("role:judge|why?||a1|a2|a3|"));
  CHECK_THAT(last_prompt("a2"), Catch::Contains("role:judge|why?|||a1|a2|"));
}

TEST_CASE("a condition that does not hold skips the step, and those behind it see nothing of it") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {0}).when = ConditionSpec{.agent = "a", .matches = "yes", .negate = false, .where = {}};
  builder.add("c", {0}).when = ConditionSpec{.agent = "a", .matches = "yes", .negate = true, .where = {}};
  builder.add("d", {1, 2});
  auto engine = std::make_shared<ScriptedEngine>(named_answers());
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record.state == RunState::ok);
  CHECK(record_of(record, "b").state == TurnState::skipped);
  CHECK(record_of(record, "b").error == "its condition does not hold");
  CHECK(record_of(record, "c").state == TurnState::ok);
  CHECK(engine->prompts.back().find("role:d|why?||c!|") != std::string::npos);
  CHECK(record_of(record, "d").slots[1].tokens == 0);
  CHECK(record_of(record, "d").slots[1].reason == "empty: the agent has no output");
}

TEST_CASE("the answer is what the pattern or the schema finds") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.agent("a").output.pattern = "The answer is (-?[0-9]+)";
  builder.add("b", {});
  builder.agent("b").output.schema = R"({"type": "object", "required": ["x"]})";
  auto engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
    if (agent_of(prompt) == "a") return Scripted{.text = "The answer is 1. No: The answer is -7."};
    return Scripted{.text = "Here:\n```json\n{\"x\": 1}\n```"};
  });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record_of(record, "a").answer == "-7");
  CHECK(record_of(record, "b").answer == "{\"x\": 1}");
  CHECK(record_of(record, "a").output == "The answer is 1. No: The answer is -7.");
}

TEST_CASE("an output without the answer fails, also at the only attempt") {
  PlanBuilder builder;
  builder.add("a", {});
  SECTION("pattern") { builder.agent("a").output.pattern = "The answer is (-?[0-9]+)"; }
  SECTION("schema") { builder.agent("a").output.schema = R"({"type": "object"})"; }
  const RunRecord record = run_plan(builder.request(std::make_shared<ScriptedEngine>(named_answers())));
  CHECK(record.state == RunState::failed);
  CHECK(record.error.starts_with("agent 'a' failed: the output does not "));
  CHECK(record_of(record, "a").state == TurnState::failed);
}

TEST_CASE("of JSON in a code block, the error says what is wrong with it") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.agent("a").output.schema = R"({"type": "object", "required": ["x"]})";
  const auto engine =
      std::make_shared<ScriptedEngine>([](const std::string&) { return Scripted{.text = "```json\n{\"y\": 1}\n```"}; });
  CHECK(run_plan(builder.request(engine)).error ==
        "agent 'a' failed: the output does not fit the schema: the value: the key 'x' is missing");
}

TEST_CASE("an output that is constrained as a whole is the answer, and is enforced or only checked") {
  const auto run_with = [](const OutputSpec& output, const std::string& text, bool enforced) {
    PlanBuilder builder;
    builder.add("a", {});
    builder.agent("a").output = output;
    builder.agent("a").output.enforce = enforced;
    const auto engine = std::make_shared<ScriptedEngine>([&](const std::string&) { return Scripted{.text = text}; });
    const RunRecord record = run_plan(builder.request(engine));
    CHECK((engine->constraints.at(0) != nullptr) == enforced);
    return record;
  };
  OutputSpec choice, regex, grammar, schema;
  choice.texts = {"yes", "no"};
  regex.regex = "ye?s|no{1,2}";
  grammar.grammar = "root ::= \"y\" [e] \"s\" | \"no\"";
  schema.schema = R"({"enum": ["yes", 3]})";
  for (const bool enforced : {true, false}) {
    for (const OutputSpec& output : {choice, regex, grammar}) {
      CHECK(record_of(run_with(output, "yes", enforced), "a").answer == "yes");
      const RunRecord record = run_with(output, "yes!", enforced);
      CHECK(record.state == RunState::failed);
      CHECK_THAT(record.error, Catch::Contains("the output "));
    }
    CHECK(record_of(run_with(schema, "3", enforced), "a").answer == "3");
    CHECK(run_with(schema, "4", enforced).state == RunState::failed);
  }
  CHECK_THAT(run_with(choice, "maybe", true).error, Catch::Contains("none of the texts of its enum"));
}

TEST_CASE("a timeout and a stop end a run while a vocabulary is read for its constraint") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.agent("a").output.schema = R"({"type": "object"})";
  const auto engine = std::make_shared<ScriptedEngine>(named_answers());
  std::promise<void> reading;
  engine->on_vocabulary = [&](const std::stop_token& stop) {
    reading.set_value();
    while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    throw Interrupted();
  };
  RunRequest request = builder.request(engine);
  SECTION("timeout") {
    request.timeout = Milliseconds(50);
    CHECK(run_plan(request).state == RunState::timeout);
  }
  SECTION("stop") {
    std::stop_source source;
    request.stop = source.get_token();
    std::jthread stopper([&] {
      reading.get_future().wait();
      source.request_stop();
    });
    CHECK(run_plan(request).state == RunState::cancelled);
  }
  CHECK(engine->prompts.empty());
}

TEST_CASE("an output that is cut off before it is what is enforced says so") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.agent("a").output.schema = R"({"type": "array"})";
  const auto engine = std::make_shared<ScriptedEngine>(
      [](const std::string&) { return Scripted{.text = "[1, 2", .reason = FinishReason::length}; });
  const RunRecord record = run_plan(builder.request(engine));
  CHECK(record.state == RunState::failed);
  CHECK_THAT(record.error,
             Catch::Contains("the output was cut off before it was complete") && Catch::Contains("not JSON"));
}

TEST_CASE("an output without the answer is a warning where none is required") {
  PlanBuilder builder;
  const int attempts = GENERATE(1, 2);
  builder.add("a", {}).retry.attempts = attempts;
  builder.agent("a").output.pattern = "The answer is (-?[0-9]+)";
  builder.agent("a").output.required = false;
  RunRequest request = builder.request(std::make_shared<ScriptedEngine>(named_answers()));
  std::vector<std::string> warnings;
  request.on_event = [&](const Event& event) {
    if (const Warning* warning = std::get_if<Warning>(&event)) warnings.push_back(warning->message);
  };
  const RunRecord record = run_plan(request);
  CHECK(record.state == RunState::ok);
  CHECK(record_of(record, "a").answer.empty());
  CHECK(record_of(record, "a").output == "a!");
  CHECK(record_of(record, "a").attempts == attempts);
  REQUIRE(warnings.size() == static_cast<std::size_t>(attempts));
  CHECK(warnings.back() == "agent 'a': the output does not match the pattern 'The answer is (-?[0-9]+)'");
}

TEST_CASE("seeds depend on the run's seed, the step and the attempt, not on the order") {
  PlanBuilder builder;
  builder.add("a", {});
  builder.add("b", {});
  const auto seeds = [&](std::optional<std::uint64_t> seed, int max_parallel) {
    builder.spec.topology.max_parallel = max_parallel;
    auto engine = std::make_shared<ScriptedEngine>(named_answers());
    RunRequest request = builder.request(engine);
    request.seed = seed;
    const RunRecord record = run_plan(request);
    CHECK(record.seed == seed.value_or(0));
    std::map<std::string, std::uint64_t> by_agent;
    for (std::size_t i = 0; i < engine->prompts.size(); ++i) by_agent[agent_of(engine->prompts[i])] = engine->seeds[i];
    return by_agent;
  };
  const auto first = seeds(7, 0);
  CHECK(first.at("a") != first.at("b"));
  CHECK(seeds(7, 1) == first);
  CHECK(seeds(8, 0) != first);
  CHECK(seeds(std::nullopt, 0) == seeds(0, 0));
}

TEST_CASE("attempts of neighbouring turns and run seeds have seeds of their own, evenly spread") {
  std::set<std::uint64_t> seen;
  std::array<int, 64> ones{};
  int count = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    for (char letter = 'a'; letter <= 'z'; ++letter) {
      for (const std::string turn : {std::string{letter}, std::string{letter} + "#2", "agent_" + std::string{letter}}) {
        for (int attempt = 1; attempt <= 3; ++attempt, ++count) {
          const std::uint64_t drawn = attempt_seed(seed, turn, attempt);
          seen.insert(drawn);
          for (std::size_t bit = 0; bit < 64; ++bit) ones[bit] += static_cast<int>(drawn >> bit & 1);
        }
      }
    }
  }
  CHECK(static_cast<int>(seen.size()) == count);
  for (const int one : ones) CHECK(std::abs(one - count / 2) < 4 * std::sqrt(count) / 2);  // four deviations
}

TEST_CASE("sixteen runs at once on one engine do not mix") {
  auto engine = std::make_shared<ScriptedEngine>([](const std::string& prompt) {
    const std::size_t question = prompt.find('|', prompt.find("role:")) + 1;
    const std::string text = agent_of(prompt) + prompt.substr(question, prompt.find('|', question) - question);
    return Scripted{.text = text, .per_token = std::chrono::microseconds(50)};
  });
  std::vector<RunRecord> records(16);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < records.size(); ++i) {
      threads.emplace_back([&, i] {
        PlanBuilder builder;
        builder.add("a", {});
        builder.add("b", {});
        builder.add("c", {0, 1});
        builder.output("answer", "agent_c_current");
        RunRequest request = builder.request(engine);
        request.inputs["question"] = std::to_string(i);
        records[i] = run_plan(request);
      });
    }
  }
  for (std::size_t i = 0; i < records.size(); ++i) {
    CHECK(records[i].outputs.at("answer") == "c" + std::to_string(i));
    CHECK(record_of(records[i], "c").prompt_tokens > 0);
  }
  CHECK(engine->open() == 0);
}

}  // namespace executor_test
