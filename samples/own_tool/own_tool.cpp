// SPDX-License-Identifier: Apache-2.0
// A function of this program that agents call: it knows the prices of a shop. With the shipped model the workflow calls
// it, before a prompt is built; a model that is named by an argument calls it itself. Needs nlohmann/json for what that
// model says. docs/yaml.md, "Tools that a model calls".
//
//   own_tool [MODEL]        a folder, a .gguf file, a name or hf:ORG/NAME
#include <baton/baton.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <iostream>
#include <map>

// An agent without a prompt: what its tool returns is what it says.
const std::string kWorkflowCalls = R"(
  shop: {tools: [{price_of: {item: books}}]}
)";

const std::string kModelCalls = R"(
  shop:
    prompt: {system: You answer questions by calling the tool that fits., user: "What is the price of books?"}
    tools: [{call: price_of}]
    calls: {direct: true}
)";

// team(shop): the workflow with one of the two.
std::string team(const std::string& shop) {
  return R"(
version: 1
name: own-tool
inputs: {}
models: {main: nano}
defaults: {max_tokens: 300}
agents:)" +
         shop + R"(
  analyst:
    prompt:
      system: >-
        You are a mathematical analyst. You will be given a math problem and maybe answers of other agents.
        Repeat the problem, name each quantity with a letter, then put in the numbers.
        The last line is only the final result.
      user: >-
        Question:

        Noah pays for 2 books at {{ agent_shop_current }} coins each with 75 coins.
        How many coins does he get back from the shop?
workflow: {topology: chain, agents: [shop, analyst]}
outputs: {price: "{{ agent_shop_current }}", answer: "{{ agent_analyst_current }}"}
)";
}

/// Called on threads of the library. What it returns or throws is a result: a failed call ends no run.
baton::ToolResult price_of(const baton::ToolCall& call) {
  static const std::map<std::string, int> prices = {{"books", 7}, {"pens", 3}, {"plums", 2}};
  const std::string item = call.arguments.empty()
                               ? call.options.at("item")  // from the workflow
                               : nlohmann::json::parse(call.arguments).at("item").get<std::string>();  // from a model
  const auto found = prices.find(item);
  if (found == prices.end()) return {.ok = false, .text = "the shop has no " + item};
  return {.ok = true, .text = std::to_string(found->second)};
}

int main(int argc, char** argv) {
  try {
    baton::Tools tools;
    const std::string parameters = R"({"properties": {"item": {"enum": ["books", "pens", "plums"]}},
                                       "required": ["item"], "additionalProperties": false})";
    tools.add("price_of", {"The price in coins of one thing that the shop sells.", parameters}, price_of);

    const auto engine = baton::Engine::open({.model = argc > 1 ? argv[1] : ""});
    const auto workflow = baton::Workflow::parse(team(argc > 1 ? kModelCalls : kWorkflowCalls), {.tools = tools});
    const auto run = engine.start(workflow);
    for (const auto& event : run.events()) {
      if (const auto* called = std::get_if<baton::ToolCalled>(&event))
        std::cout << called->agent << " called " << called->tool << '(' << called->arguments << "): " << called->result
                  << '\n';
    }
    const baton::RunRecord record = run.get();
    if (record.state != baton::RunState::ok) throw baton::Error(record.error);
    std::cout << record.outputs.at("answer") << '\n';
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return EXIT_FAILURE;
  }
}
