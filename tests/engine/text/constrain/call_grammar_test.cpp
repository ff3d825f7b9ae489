// SPDX-License-Identifier: Apache-2.0
#include "engine/text/constrain/call_grammar.h"

#include <catch2/catch.hpp>
#include <random>

namespace call_grammar_test {

using namespace baton;

namespace {

const std::vector<ToolSchema> kTools = {
    {"weather", "", R"({"properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1,
                        "maximum": 9}}, "required": ["city"], "additionalProperties": false})"},
    {"paint", "", R"({"type": "object", "properties": {"colour": {"$ref": "#/definitions/colour"}},
                      "required": ["colour"], "additionalProperties": false,
                      "definitions": {"colour": {"enum": ["red", "blue"]}}})"},
};
const std::string kParis = R"({"name": "weather", "arguments": {"city": "Paris"}})";
const std::string kRed = R"({"name": "paint", "arguments": {"colour": "red"}})";

std::string tagged(const std::string& json) { return "<tool_call>\n" + json + "\n</tool_call>"; }

}  // namespace

TEST_CASE("an answer with tools is a text, calls of them, or a text and then calls", "[constrain]") {
  const auto calls = call_grammar({}, kTools, 2, true);
  for (const std::string& text :
       {tagged(kParis), tagged(kRed), "I look.\n" + tagged(kRed), tagged(kParis) + "\n" + tagged(kRed), kParis,
        kParis + "\n" + kRed, "```json\n" + kParis + "\n```"}) {
    INFO(text);
    CHECK(accepts(*calls, text));
    CHECK_FALSE(accepts(*text_grammar({}, true), text));
  }
  const std::string green = R"({"name": "paint", "arguments": {"colour": "green"}})";
  const std::string nobody = R"({"name": "sing", "arguments": {}})";
  const std::string mixed = R"({"name": "paint", "arguments": {"city": "Paris"}})";
  for (const std::string& text :
       {tagged(green), tagged(nobody), tagged(mixed), green, std::string("hello"), tagged(kParis) + " done",
        tagged(kParis) + tagged(kRed) + tagged(kRed), std::string("<tool_call>\n"), "```json\n" + green + "\n```"}) {
    INFO(text);
    CHECK_FALSE(accepts(*calls, text));
  }
  const Grammar either(*text_grammar({}, true), *calls);
  for (const std::string& text :
       {std::string("hello"), std::string(), tagged(kParis), std::string("```cpp\nint i;\n```")})
    CHECK(accepts(either, text));
  CHECK_FALSE(accepts(either, tagged(green)));
}

TEST_CASE("an answer that may call no more begins with words, and holds no marker", "[constrain]") {
  const auto text = text_grammar({}, false);
  CHECK(accepts(*text, "It is 4 < 5, <b>and</b> <tool: nothing."));
  CHECK(accepts(*text, "So:\n```python\nprint(1)\n```"));
  for (const char* no : {"{}", " [1]", "```json\n{}\n```", "`x`", "no <tool_call>", "<tool_call>"})
    CHECK_FALSE(accepts(*text, no));
}

TEST_CASE("lists of calls, and calls without a marker, have the model's form", "[constrain]") {
  const CallSyntax list{"[TOOL_CALLS] [", "]", true, "name", "arguments"};
  CHECK(list.marker() == "[TOOL_CALLS]");
  const auto listed = call_grammar(list, kTools, 3, true);
  CHECK(accepts(*listed, "[TOOL_CALLS] [" + kParis + ", " + kRed + "]"));
  CHECK_FALSE(accepts(*listed, "[TOOL_CALLS] [" + kParis + "][TOOL_CALLS] [" + kRed + "]"));
  const CallSyntax bare{"", "", false, "name", "parameters"};
  const std::string call = R"({"name": "paint", "parameters": {"colour": "blue"}})";
  CHECK(accepts(*call_grammar(bare, kTools, 3, true), call));
  CHECK_FALSE(accepts(*call_grammar(bare, kTools, 3, true), kRed));
  CHECK(accepts(*text_grammar(bare, true), "Hello <tool_call>"));
  CHECK_FALSE(accepts(*text_grammar(bare, true), call));
}

TEST_CASE("a text without calls is any text in which the marker does not stand", "[constrain]") {
  const CallSyntax syntax{"<ab>", "</ab>", false, "name", "arguments"};
  const auto text = text_grammar(syntax, true);
  std::mt19937 random(5);
  int with = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string sample;
    for (std::size_t n = random() % 12; n > 0; --n) sample += "<ab>x\n"[random() % 6];
    const bool marked = sample.find("<ab>") != std::string::npos;
    with += marked ? 1 : 0;
    INFO(sample);
    CHECK(accepts(*text, sample) == !marked);
  }
  CHECK(with > 20);
  CHECK_THROWS_WITH(text_grammar({"<<", "", false, "name", "arguments"}, true), Catch::Contains("twice"));
}

TEST_CASE("what of a tool's schema cannot be enforced is named with the tool", "[constrain]") {
  const auto error_of = [](const char* schema) {
    const std::vector<ToolSchema> tools = {{"plain", "", R"({"type": "object"})"}, {"odd", "", schema}};
    try {
      return std::string(call_grammar({}, tools, 1, true)->unenforced().at(0));
    } catch (const ConstraintError& error) {
      return std::string(error.what());
    }
  };
  CHECK(error_of(R"({"properties": {"a": {"not": {"minimum": 3}}}})") ==
        "tool 'odd': /properties/a: 'not' is checked when the text is complete");
  CHECK(error_of(R"({"properties": {"a": false}, "required": ["a"]})") == "tool 'odd': no text fulfils it");
  CHECK(error_of(R"({"$ref": "http://example.com"})").starts_with("tool 'odd': /$ref: references to other documents"));
  std::vector<ToolSchema> tools = {{"odd", "", R"({"properties": {"a": {"type": "integer"}}})"}};
  const std::string text = tagged(R"({"name": "odd", "arguments": {"a": "x"}})");
  CHECK_FALSE(accepts(*call_grammar({}, tools, 1, true), text));
  tools[0].enforced = false;
  CHECK(accepts(*call_grammar({}, tools, 1, true), text));
}

}  // namespace call_grammar_test
