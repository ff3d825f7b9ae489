// SPDX-License-Identifier: Apache-2.0
// Models that think before they answer: what is their answer, who reads their thinking, and what a session keeps of it.
#include <catch2/catch.hpp>

#include "tests/support/function_tool.h"
#include "tests/support/plans.h"
#include "workflows/run/executor.h"

namespace baton::test::thinking_test {
namespace {

using Catch::Matchers::Contains;

/// As Qwen's: the model decides; earlier thinking is left out.
constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and loop.last %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";

std::shared_ptr<const Model> thinking_model(const std::string& chat = kTemplate, std::int32_t context = 1 << 24) {
  return toy_model(ChatTemplate::parse(chat, "t"), std::make_shared<ByteTokenizer>(), context);
}

bool is_behind_thinking(const std::string& prompt) {
  return prompt.find("</think>", prompt.rfind("<|im_start|>assistant")) != std::string::npos;
}

/// A thinker whose output is `whole`, and a reader of it.
struct Team {
  explicit Team(const std::string& whole, const std::string& chat = kTemplate, std::int32_t context = 1 << 24) {
    engine = std::make_shared<ScriptedEngine>(
        [whole](const std::string& prompt) {
          if (agent_of(prompt) == "reader") return Scripted{.text = "read"};
          const std::size_t end = whole.find("</think>");
          if (!is_behind_thinking(prompt)) return Scripted{.text = whole};
          return Scripted{.text =
                              end == std::string::npos ? whole : whole.substr(whole.find_first_not_of("\n", end + 8))};
        },
        thinking_model(chat, context));
    builder.add("thinker", {}).id = "thinker";
    builder.add("reader", {0});
    builder.output("result", "agent_thinker_current");
    builder.output("thought", "agent_thinker_thinking_current");
  }

  RunRecord run() {
    RunRequest request = builder.request(engine);
    request.on_event = [this](const Event& event) {
      if (const auto* token = std::get_if<Token>(&event); token != nullptr && token->agent == "thinker")
        said += token->text;
      if (const auto* token = std::get_if<ThinkingToken>(&event)) thought += token->text;
      if (std::holds_alternative<AgentStarted>(event)) ++started;
    };
    return run_plan(request);
  }

  PlannedTurn& thinker() { return builder.plan.turns[0]; }

  PlanBuilder builder;
  std::shared_ptr<ScriptedEngine> engine;
  std::string said, thought;
  int started = 0;
};

TEST_CASE("an answer is what follows the thinking, for the output, its readers and the record") {
  Team team("<think>\nRome? No.\n</think>\n\nParis");
  const RunRecord record = team.run();
  REQUIRE(record.state == RunState::ok);
  const AgentRecord& thinker = record.agents[0];
  CHECK(thinker.output == "Paris");
  CHECK(thinker.thinking == "Rome? No.");
  CHECK(thinker.thinking_tokens == 28);  // bytes, with the markers and the blanks
  CHECK(thinker.output_tokens == 5);
  CHECK(record.outputs.at("result") == "Paris");
  CHECK(record.outputs.at("thought") == "Rome? No.");
  CHECK(team.said == "Paris");
  CHECK_THAT(team.thought, Contains("Rome? No."));
  CHECK(team.started == 2);

  const std::vector<std::string>& prompts = team.engine->prompts;
  REQUIRE(prompts.size() == 4);  // the reader's model is asked to think, too
  CHECK(prompts[1] == prompts[0] + "<think>\nRome? No.\n</think>\n\n");
  CHECK_THAT(prompts[2], Contains("|Paris|") && !Contains("Rome"));
  const auto ids = team.engine->text().tokenizer->encode(prompts[0], SpecialTokens::recognise);
  CHECK(thinker.prompt_tokens == static_cast<std::int64_t>(ids.size()));
  CHECK(thinker.kv.entries == thinker.prompt_tokens * 2);  // of the prompt, which is one
}

TEST_CASE("a model that does not think answers at once") {
  Team team("Paris");
  const RunRecord record = team.run();
  CHECK(record.agents[0].output == "Paris");
  CHECK(record.agents[0].thinking.empty());
  CHECK(record.agents[0].thinking_tokens == 0);
  REQUIRE(team.engine->prompts.size() == 4);
  CHECK(team.engine->prompts[1] == team.engine->prompts[0]);
}

TEST_CASE("thinking that is switched off is not asked for") {
  Team team("Paris");
  team.thinker().think.enabled = false;
  RunRecord record = team.run();
  CHECK(record.agents[0].output == "Paris");
  CHECK_THAT(team.engine->prompts[0], Catch::Matchers::EndsWith("assistant\n<think>\n\n</think>\n\n"));
  CHECK(!team.engine->requests[0].thinking);
  CHECK(team.engine->requests[1].thinking);  // the reader's own

  // A template without a switch, and one that always begins to think.
  std::string fixed = kTemplate;
  fixed.replace(fixed.find("{% if enable_thinking"), std::string::npos,
                "{% if false %}</think>{% endif %}<think>\n{% endif %}");
  Team begun("Paris", fixed);
  begun.thinker().think.enabled = false;
  record = begun.run();
  CHECK_THAT(begun.engine->prompts[0], Catch::Matchers::EndsWith("assistant\n<think>\n\n</think>\n\n"));
  CHECK(record.agents[0].output == "Paris");
}

TEST_CASE("a forced answer has the thinking that is forced with it, or none") {
  Team team("<think>\nhm\n</think>\n\nParis");
  RunRequest request = team.builder.request(team.engine);
  request.forced["thinker"] = {80, 97};
  request.forced_thinking["thinker"] = {60, 104};
  run_plan(request);
  REQUIRE(team.engine->requests.size() == 4);
  CHECK(team.engine->requests[0].thinking);
  CHECK(team.engine->requests[0].forced == request.forced_thinking["thinker"]);
  CHECK(!team.engine->requests[1].thinking);
  CHECK(team.engine->requests[1].forced == request.forced["thinker"]);
  CHECK(team.engine->requests[2].forced.empty());  // the reader's own thinking

  Team bare("Paris");
  request = bare.builder.request(bare.engine);
  request.forced["thinker"] = {80, 97};
  run_plan(request);
  CHECK(!bare.engine->requests[0].thinking);
  CHECK(bare.engine->requests[0].forced == request.forced["thinker"]);
}

TEST_CASE("a prompt that begins the thinking has its end found") {
  std::string begins = kTemplate;
  begins.replace(begins.find("{% if enable_thinking"), std::string::npos, "<think>\n{% endif %}");
  Team team("Rome? No.\n</think>\n\nParis", begins);
  const RunRecord record = team.run();
  CHECK(record.agents[0].output == "Paris");
  CHECK(record.agents[0].thinking == "Rome? No.");
  CHECK(team.engine->requests[0].thinking->begin.empty());
}

TEST_CASE("a budget ends thinking with the model's own marker") {
  Team team("<think>Rome? No, and so on without an end</think>\n\nParis");
  team.thinker().think.budget = 12;
  const RunRecord record = team.run();
  CHECK(record.agents[0].thinking == "Rome?");
  CHECK(record.agents[0].thinking_tokens == 12);
  CHECK(record.agents[0].output == "Paris");
  CHECK(record.agents[0].truncated == false);
  CHECK(team.engine->prompts[1] == team.engine->prompts[0] + "<think>Rome?\n</think>\n\n");
  CHECK(team.engine->requests[1].max_tokens == team.thinker().max_tokens);
}

TEST_CASE("a model that ends its answer while it thinks is asked for the answer") {
  Team team("<think>Rome?");
  team.builder.plan.turns[1].think.enabled = false;
  const RunRecord record = team.run();
  CHECK(record.agents[0].thinking == "Rome?");
  CHECK(team.engine->prompts[1] == team.engine->prompts[0] + "<think>Rome?\n</think>\n\n");
}

TEST_CASE("a constraint, choices and stop texts hold behind the thinking") {
  Team team("<think>\nRome or Paris?\n</think>\n\nParis");
  team.builder.agent("thinker").output.texts = {"Rome", "Paris"};
  RunRecord record = team.run();
  CHECK(record.agents[0].output == "Paris");
  CHECK(record.agents[0].answer == "Paris");
  CHECK(team.engine->constraints[0] == nullptr);
  REQUIRE(team.engine->constraints[1] != nullptr);
  CHECK(accepts(*team.engine->constraints[1], "Paris"));
  CHECK(accepts(*team.engine->constraints[1], " \nParis"));
  CHECK(!accepts(*team.engine->constraints[1], "Berlin"));

  Team stops("<think>\nfirst. second.\n</think>\n\nthird");
  stops.thinker().stop = {"."};
  record = stops.run();
  CHECK(record.agents[0].output == "third");
  CHECK(stops.engine->requests[0].stop.empty());
  CHECK(stops.engine->requests[1].stop == std::vector<std::string>{"."});

  Team chooses("<think>\nhm\n</think>\n\nParis");
  chooses.thinker().choices = {"Rome", "Paris"};
  record = chooses.run();
  CHECK(chooses.engine->choices[0].empty());
  CHECK(chooses.engine->choices[1].size() == 2);
}

TEST_CASE("blanks that a model writes in front of its answer are no part of it") {
  Team team("<think>Rome? No.</think> Paris");
  const RunRecord record = team.run();
  CHECK(record.agents[0].output == "Paris");
}

TEST_CASE("an agent's thinking is a placeholder of its own") {
  Team team("<think>\nRome? No.\n</think>\n\nParis");
  PlannedTurn& reader = team.builder.plan.turns[1];
  reader.slots.push_back({"agent_thinker_thinking_current", SlotSource::Kind::agent_thinking, 0, &full_method(), ""});
  reader.messages[0].pieces.push_back({"", "agent_thinker_thinking_current"});
  const RunRecord record = team.run();
  CHECK(record.state == RunState::ok);
  CHECK_THAT(team.engine->prompts[2], Contains("|Paris|Rome? No."));
}

TEST_CASE("a call that is only considered while the model thinks is not made") {
  const std::string call = "<tool_call>\n{\"name\": \"delete\", \"arguments\": {}}\n</tool_call>";
  Team team("<think>I could write " + call + " but nobody asked.</think>\n\nNothing to do.");
  int calls = 0;
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("delete", [&](const ToolCall&) {
    ++calls;
    return ToolResult{true, "deleted", ""};
  }));
  team.builder.tools = registry;
  std::vector<CallableTool> tools = {{{"delete", "Deletes.", R"({"type": "object"})"}, {}, nullptr}};
  team.thinker().calls = std::make_shared<const CallableTools>(std::move(tools), CallLimits{}, nullptr);
  const RunRecord record = team.run();
  CHECK(record.agents[0].output == "Nothing to do.");
  CHECK(calls == 0);
}

TEST_CASE("thinking around calls adds up, and each answer has its own") {
  const std::string call = "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
  PlanBuilder builder;
  builder.add("a", {});
  auto engine = std::make_shared<ScriptedEngine>(
      [&](const std::string& prompt) {
        const bool second = prompt.find("<tool_response>") != std::string::npos;
        const std::string thought = second ? "<think>two</think>\n\n" : "<think>one</think>\n\n";
        const std::string answer = second ? "Sunny." : call;
        return Scripted{.text = is_behind_thinking(prompt) ? answer : thought + answer};
      },
      thinking_model());
  auto registry = std::make_shared<ToolRegistry>();
  registry->add(std::make_shared<FunctionTool>("look", [&](const ToolCall&) { return ToolResult{true, "sun", ""}; }));
  builder.tools = registry;
  std::vector<CallableTool> tools = {{{"look", "Looks.", R"({"type": "object"})"}, {}, nullptr}};
  builder.plan.turns[0].calls = std::make_shared<const CallableTools>(std::move(tools), CallLimits{}, nullptr);
  const RunRecord record = run_plan(builder.request(engine));
  REQUIRE(record.state == RunState::ok);
  CHECK(record.agents[0].output == "Sunny.");
  CHECK(record.agents[0].thinking == "one\n\ntwo");
  REQUIRE(engine->prompts.size() == 4);
  CHECK(engine->prompts[3].find("one</think>\n\n" + call) != std::string::npos);  // within a turn it stays
  CHECK(record.agents[0].tools.size() == 1);
  CHECK(record.agents[0].tools[0].generation == 1);
}

/// As gpt-oss': thinking, texts and calls are channels.
constexpr const char* kChannels =
    "{% if tools %}<|start|>developer<|message|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}{% if m.role == 'tool' %}<|start|>functions.{{ m.name }} to=assistant<|channel|>commentary"
    "<|message|>{{ m.content }}<|end|>{% elif m.tool_calls %}"
    "{% if m.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif %}"
    "<|start|>assistant<|channel|>commentary to=functions.{{ m.tool_calls[0].function.name }} "
    "<|constrain|>json<|message|>{{ m.tool_calls[0].function.arguments | tojson }}<|call|>"
    "{% elif m.role == 'assistant' %}"
    "{% if m.thinking and loop.last %}<|start|>assistant<|channel|>analysis<|message|>{{ m.thinking }}<|end|>{% endif "
    "%}"
    "<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}";

TEST_CASE("in channels an answer is the text of the final one, with tools and without") {
  for (const bool tools : {false, true}) {
    INFO("tools: " << tools);
    PlanBuilder builder;
    PlannedTurn& turn = builder.add("a", {});
    if (tools) {
      auto registry = std::make_shared<ToolRegistry>();
      registry->add(std::make_shared<FunctionTool>("look", [](const ToolCall&) {
        return ToolResult{true, "sun", ""};
      }));
      builder.tools = registry;
      std::vector<CallableTool> all = {{{"look", "Looks.", R"({"type": "object"})"}, {}, nullptr}};
      turn.calls = std::make_shared<const CallableTools>(std::move(all), CallLimits{}, nullptr);
    }
    auto engine = std::make_shared<ScriptedEngine>(
        [&](const std::string& prompt) {
          const std::string thought = "<|channel|>analysis<|message|>Rome? No.<|end|>";
          const std::string header = "<|channel|>final<|message|>";
          if (prompt.ends_with(header)) return Scripted{.text = "Paris"};
          const bool thinks = prompt.ends_with("<|start|>assistant") && prompt.find("analysis") == std::string::npos;
          return Scripted{.text = (thinks ? thought + "<|start|>assistant" : "") + header + "Paris"};
        },
        toy_model(ChatTemplate::parse(kChannels, "t")));
    RunRequest request = builder.request(engine);
    std::string said;
    request.on_event = [&](const Event& event) {
      if (const auto* token = std::get_if<Token>(&event)) said += token->text;
    };
    const RunRecord record = run_plan(request);
    REQUIRE(record.state == RunState::ok);
    CHECK(record.agents[0].thinking == "Rome? No.");
    CHECK(record.agents[0].output == "Paris");
    CHECK(said == "Paris");
    REQUIRE(engine->prompts.size() == 2);
    CHECK_THAT(engine->prompts[1], Contains("<|channel|>analysis<|message|>Rome? No.<|end|><|start|>assistant"));
  }
}

/// Runs of a session, one after another.
void run_session(Team& team, int runs, const std::function<void(RunRequest& request, int run)>& change = {}) {
  SessionMemory memory;
  for (int i = 0; i < runs; ++i) {
    RunRequest request = team.builder.request(team.engine);
    request.memory = memory;
    request.on_memory = [&](const SessionMemory* kept) {
      if (kept != nullptr) memory = *kept;
    };
    if (change) change(request, i);
    REQUIRE(run_plan(request).state == RunState::ok);
  }
}

TEST_CASE("a session keeps of the thinking what it is told to") {
  const auto prompt_of_third_run = [](std::optional<ThinkSpec::Keep> keep) {
    Team team("<think>\nhm\n</think>\n\nParis");
    team.builder.plan.turns.resize(1);
    team.builder.plan.turns[0].think.keep = keep;
    run_session(team, 3);
    return team.engine->prompts[4];
  };
  const std::string user = "<|im_start|>user\nrole:thinker|why?|<|im_end|>\n", assistant = "<|im_start|>assistant\n";
  const std::string thought = "<think>\nhm\n</think>\n\n", answer = "Paris<|im_end|>\n";
  CHECK(prompt_of_third_run(std::nullopt) == user + assistant + answer + user + assistant + answer + user + assistant);
  CHECK(prompt_of_third_run(ThinkSpec::Keep::all) ==
        user + assistant + thought + answer + user + assistant + thought + answer + user + assistant);
  CHECK(prompt_of_third_run(ThinkSpec::Keep::last) ==
        user + assistant + answer + user + assistant + thought + answer + user + assistant);
}

TEST_CASE("what a session remembers is the template's own rendering, for 30 runs") {
  Team team("<think>\nhm\n</think>\n\nParis");
  team.builder.plan.turns.resize(1);
  std::vector<ChatMessage> said;
  run_session(team, 30,
              [](RunRequest& request, int i) { request.inputs["question"] = "question " + std::to_string(i); });
  for (int i = 0; i < 30; ++i) {
    said.push_back({"user", "role:thinker|question " + std::to_string(i) + "|"});
    const ModelText& model = team.engine->text();
    CHECK(team.engine->prompts[2 * static_cast<std::size_t>(i)] ==
          model.chat_template->render(said, model.chat_options));
    said.push_back({"assistant", "Paris"});
    said.back().thinking = "hm";
  }
}

TEST_CASE("a session keeps no empty thinking that only a new answer has") {
  Team team("Paris");
  team.builder.plan.turns.resize(1);
  team.builder.plan.turns[0].think.enabled = false;
  run_session(team, 2);
  const std::string user = "<|im_start|>user\nrole:thinker|why?|<|im_end|>\n", assistant = "<|im_start|>assistant\n";
  CHECK(team.engine->prompts[1] ==
        user + assistant + "Paris<|im_end|>\n" + user + assistant + "<think>\n\n</think>\n\n");
}

TEST_CASE("thinking leaves room for the answer, and there may be none for it") {
  Team team("<think>" + std::string(3000, 'x') + "</think>\n\nParis", kTemplate, 4096);
  team.thinker().max_tokens = 100;
  RunRecord record = team.run();
  CHECK(team.engine->requests[0].max_tokens < 4096 - 100);
  CHECK(record.agents[0].output == "Paris");

  Team full("<think>x</think>\n\nParis", kTemplate, 4096);
  full.builder.plan.turns.resize(1);
  full.thinker().max_tokens = 2000;
  RunRequest request = full.builder.request(full.engine);
  request.inputs["question"] = std::string(2060, 'q');
  record = run_plan(request);
  REQUIRE(full.engine->prompts.size() == 1);
  CHECK_THAT(full.engine->prompts[0], Catch::Matchers::EndsWith("<think>\n</think>\n\n"));
}

}  // namespace
}  // namespace baton::test::thinking_test
