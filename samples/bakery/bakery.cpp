// SPDX-License-Identifier: Apache-2.0
// A bakery's program: a team of agents, whose models call a function of this program.
#include <baton/baton.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

namespace {

const std::map<std::string, int> kCents = {{"roll", 35}, {"baguette", 180}, {"croissant", 120}, {"rye bread", 390}};

const char* const kBillArguments = R"({
  "properties": {"lines": {"minItems": 1, "maxItems": 10, "items": {
    "properties": {"item": {"enum": ["roll", "baguette", "croissant", "rye bread"]},
                   "number": {"type": "integer", "minimum": 1, "maximum": 500}},
    "required": ["item", "number"]}}},
  "required": ["lines"]})";

std::string euros(int cents) {
  char text[32];
  std::snprintf(text, sizeof text, "%d.%02d euros", cents / 100, cents % 100);
  return text;
}

// The arguments fit the schema, but a model chose them. An exception becomes an error that the model reads.
baton::ToolResult bill(const baton::ToolCall& call) {
  std::string text;
  int total = 0;
  const auto arguments = nlohmann::json::parse(call.arguments);
  for (const auto& line : arguments.at("lines")) {
    const auto item = line.at("item").get<std::string>();
    const int number = line.at("number").get<int>();
    total += number * kCents.at(item);
    text += std::to_string(number) + " x " + item + ": " + euros(number * kCents.at(item)) + "\n";
  }
  return {true, text + "Total: " + euros(total)};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: bakery MODEL ORDER\n");
    return 2;
  }
  try {
    baton::Tools tools;
    tools.add("bill", {"Adds up the bill of an order.", kBillArguments}, bill);
    const auto engine = baton::Engine::open({.model = arguments[1]});
    const auto team = baton::Workflow::load("bakery.yaml", {.tools = tools});
    const auto record = engine.run(team, {.inputs = {{"order", arguments[2]}}});
    for (const auto& [name, text] : record.outputs) std::printf("%s: %s\n", name.c_str(), text.c_str());
    if (!record.error.empty()) std::fprintf(stderr, "%s\n", record.error.c_str());
    return record.state == baton::RunState::ok ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
