// SPDX-License-Identifier: Apache-2.0
#include <baton/baton.h>
#include <baton/system.h>
#include <baton/turns.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace workflow_test {

namespace {

constexpr auto kTeam = R"yaml(
version: 1
name: pair
inputs:
  question: {type: string, required: true, description: What to answer}
  tone: {type: string, required: false, default: calm}
models: {main: {path: nano}}
defaults: {max_tokens: 12}
agents:
  writer:
    role: Writer
    prompt: {user: "{{ tone }}: {{ question }}"}
  editor:
    role: Editor
    prompt: {user: "{{ question }} {{ agent_writer_current }}"}
    output: {pattern: "([0-9]+)"}
workflow: {topology: chain, agents: [writer, editor]}
outputs: {answer: "{{ agent_editor_current }}"}
)yaml";

std::string with_tool(const std::string& tool) {
  return R"(
version: 1
name: tools
inputs: {question: {type: string, required: true}}
models: {main: {path: nano}}
agents:
  writer: {prompt: {user: "{{ question }}"}}
  checker:
    prompt: {user: "{{ agent_writer_current }} {{ condition_checker_current }}"}
    tools: [{)" +
         tool + R"(: {from: agent_writer_current}}]
workflow: {topology: chain, agents: [writer, checker]}
outputs: {answer: "{{ agent_checker_current }}"}
)";
}

baton::ToolResult count(const baton::ToolCall& call) { return {true, std::to_string(call.text.size())}; }

}  // namespace

TEST_CASE("a tool that the file describes may be absent where the workflow is only shown") {
  const std::string yaml = R"(
version: 1
name: orders
models: {main: {path: nano}}
tools:
  find_order: {description: Finds an order., parameters: {properties: {id: {type: integer}}}}
  count: {description: Counts bytes.}
agents:
  clerk: {prompt: "{{ user_question }}", tools: [{call: find_order}]}
  checker: {prompt: "{{ condition_checker_current }}", tools: [{count: {from: agent_clerk_current, unit: bytes}}]}
workflow: {topology: chain}
)";
  CHECK_THROWS_WITH(baton::Workflow::parse(yaml), Catch::Contains("E0204") && Catch::Contains("has to provide it"));
  const auto shown = baton::Workflow::parse(yaml, {.absent_tools = true});
  CHECK(shown.absent_tools() == std::vector<std::string>{"find_order", "count"});
  CHECK(shown.turns()[0].calls == std::vector<std::string>{"find_order"});
  CHECK(shown.turns()[1].tools == std::vector<std::string>{"count"});
  CHECK_THROWS_WITH(baton::Engine::open().start(shown, {.inputs = {{"user_question", "?"}}}),
                    Catch::Contains("find_order, count"));

  const auto whole = baton::Workflow::parse(
      yaml, {.tools = baton::Tools().add("find_order", count).add("count", count), .absent_tools = true});
  CHECK(whole.absent_tools().empty());
  const auto replaced = [&](const std::string& what, const std::string& by) {
    std::string text = yaml;
    return text.replace(text.find(what), what.size(), by);
  };
  // Without a description or parameters it may be a slip, and without parameters no model can call it.
  CHECK_THROWS_WITH(baton::Workflow::parse(replaced("{description: Counts bytes.}", "{}"), {.absent_tools = true}),
                    Catch::Contains("E0204"));
  CHECK_THROWS_WITH(
      baton::Workflow::parse(replaced(", parameters: {properties: {id: {type: integer}}}", ""), {.absent_tools = true}),
      Catch::Contains("E0402"));
  CHECK_THROWS_WITH(baton::Workflow::parse(replaced("call: find_order", "call: find_oder"), {.absent_tools = true}),
                    Catch::Contains("did you mean 'find_order'?"));
}

TEST_CASE("a tool of the host that models can call has a definition, which is checked") {
  const std::string parameters = R"({"properties": {"id": {"type": "integer"}}, "required": ["id"]})";
  baton::Tools tools;
  tools.add("find", {"Finds.", parameters}, count);
  CHECK_THROWS_AS(tools.add("find", {"Finds.", parameters}, count), std::invalid_argument);
  CHECK_THROWS_WITH(tools.add("other", {"", "{"}, count), Catch::Contains("tool 'other': parameters"));
  CHECK_THROWS_WITH(tools.add("other", {"", R"({"type": "string"})"}, count), Catch::Contains("of an object"));
  const std::string team = "version: 1\nmodels: {main: nano}\nagents: {a: {prompt: hi, tools: [{call: find}]}}\n";
  CHECK_NOTHROW(baton::Workflow::parse(team, {.tools = tools}));
  CHECK_THROWS_WITH(baton::Workflow::parse(team), Catch::Contains("unknown tool 'find'"));
  baton::Tools silent;
  silent.add("find", count);
  CHECK_THROWS_WITH(baton::Workflow::parse(team, {.tools = silent}),
                    Catch::Contains("whose 'parameters' are not known"));
}

TEST_CASE("a workflow tells what it takes and what it will do") {
  const auto workflow = baton::Workflow::parse(kTeam);
  CHECK(workflow.name() == "pair");

  const auto inputs = workflow.inputs();
  REQUIRE(inputs.size() == 2);
  CHECK(inputs[0].name == "question");
  CHECK(inputs[0].required);
  CHECK(inputs[0].description == "What to answer");
  CHECK(inputs[1].default_value == "calm");

  const auto turns = workflow.turns();
  REQUIRE(turns.size() == 2);
  CHECK(turns[0].agent == "writer");
  CHECK(turns[0].max_tokens == 12);
  CHECK(turns[1].needs == std::vector<int>{0});
  const auto& slots = turns[1].slots;
  REQUIRE(slots.size() == 2);
  CHECK(slots[1].name == "agent_writer_current");
  CHECK(slots[1].source == baton::SlotInfo::Source::agent_output);
  CHECK(slots[1].turn == 0);

  CHECK_FALSE(workflow.agents()[0].has_answer);
  CHECK(workflow.agents()[1].has_answer);
  CHECK(workflow.graph("mermaid").find("writer") != std::string::npos);
  CHECK_THROWS_AS(workflow.graph("svg"), std::invalid_argument);
}

TEST_CASE("a wrong workflow throws every mistake with its place") {
  std::string text = kTeam;
  text.replace(text.find("{{ tone }}"), 10, "{{ tune }}");
  text.replace(text.find("agent_writer_current"), 20, "agent_writter_current");
  try {
    baton::Workflow::parse(text, {}, "pair.yaml");
    FAIL("it was taken");
  } catch (const baton::WorkflowError& error) {
    REQUIRE(error.items.size() == 2);
    CHECK(error.items[0].line == 12);
    CHECK(error.items[0].column > 1);
    CHECK(error.items[0].code.size() == 5);
    CHECK(error.items[0].hint.find("tone") != std::string::npos);
    CHECK(std::string(error.what()).find("pair.yaml:12:") != std::string::npos);
  }
  CHECK_THROWS_AS(baton::Workflow::load("/no/such/file.yaml"), baton::Error);
}

TEST_CASE("settings over the file") {
  const auto workflow = baton::Workflow::parse(kTeam, {.set = {{"defaults.max_tokens", "7"}}});
  CHECK(workflow.turns()[0].max_tokens == 7);
  CHECK_THROWS_AS(baton::Workflow::parse(kTeam, {.set = {{"defaults.max_tokns", "7"}}}), baton::WorkflowError);
}

TEST_CASE("a tool that is not there is an error when the workflow is loaded") {
  CHECK_THROWS_AS(baton::Workflow::parse(with_tool("count")), baton::WorkflowError);
  baton::Tools tools;
  tools.add("count", count);
  CHECK(baton::Workflow::parse(with_tool("count"), {.tools = tools}).turns()[1].tools ==
        std::vector<std::string>{"count"});
  CHECK(baton::Workflow::parse(with_tool("python")).turns().size() == 2);
}

TEST_CASE("tools have plain names of their own") {
  baton::Tools tools;
  tools.add("count", count);
  CHECK_THROWS_AS(tools.add("count", count), std::invalid_argument);
  CHECK_THROWS_AS(tools.add("No Name", count), std::invalid_argument);
  CHECK_THROWS_AS(tools.add("empty", {}), std::invalid_argument);
  CHECK(tools.names() == std::vector<std::string>{"count"});
  CHECK(tools.call("count", {.text = "four"}).text == "4");
  CHECK_THROWS_AS(tools.call("other", {}), std::invalid_argument);
  tools.add("broken", [](const baton::ToolCall&) -> baton::ToolResult { throw std::runtime_error("no"); });
  CHECK_FALSE(tools.call("broken", {}).ok);
}

TEST_CASE("a model that is not found lists where it was looked for") {
  try {
    baton::find_model("no-such-model");
    FAIL("it was found");
  } catch (const baton::ResourceError& error) {
    CHECK(error.kind == baton::ResourceError::Kind::model);
    const std::string text = error.what();
    CHECK(text.find("BATON_MODEL_PATH") != std::string::npos);
    for (const auto& folder : baton::model_search_path()) CHECK(text.find(folder.string()) != std::string::npos);
  }
  CHECK_THROWS_AS(baton::Engine::open({.model = "/no/such/folder"}), baton::ResourceError);
}

TEST_CASE("a workflow that ships with the library has a bare name") {
  CHECK(baton::find_workflow("math_team").filename() == "math_team.yaml");
  CHECK(baton::Workflow::load("math_team").name() == "math-team");
  for (const char* path : {"no_such_team", "math_team.yaml", "./math_team", ""})
    CHECK(baton::find_workflow(path) == path);
  CHECK_THROWS_AS(baton::Workflow::load("no_such_team"), baton::WorkflowError);

  // A file of that name wins.
  const auto before = std::filesystem::current_path();
  const auto folder = std::filesystem::temp_directory_path() / "baton_workflow_name_test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "math_team") << "version: 1\n";
  std::filesystem::current_path(folder);
  CHECK(baton::find_workflow("math_team") == "math_team");
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

TEST_CASE("bare names are looked for in BATON_MODEL_PATH first") {
  const auto folder = std::filesystem::temp_directory_path() / "baton_models_test";
  std::filesystem::create_directories(folder / "mine");
  std::ofstream(folder / "mine" / "config.json") << "{}";
  const char* old = std::getenv("BATON_MODEL_PATH");
  const std::string before = old == nullptr ? "" : old;
  setenv("BATON_MODEL_PATH", ("/nowhere:" + folder.string()).c_str(), 1);
  CHECK(baton::find_model("mine") == folder / "mine");
  const auto models = baton::models();
  REQUIRE_FALSE(models.empty());
  CHECK(models[0].name == "mine");
  CHECK_FALSE(models[0].problem.empty());
  old == nullptr ? unsetenv("BATON_MODEL_PATH") : setenv("BATON_MODEL_PATH", before.c_str(), 1);
  std::filesystem::remove_all(folder);
}

}  // namespace workflow_test
