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
  const auto calls = call_grammar({}, kTools, {.max_calls = 2, .needed = true});
  for (const std::string& text :
       {tagged(kParis), tagged(kRed), "I look.\n" + tagged(kRed), tagged(kParis) + "\n" + tagged(kRed), kParis,
        kParis + "\n" + kRed, "```json\n" + kParis + "\n```", "\n" + kParis, "[" + kParis + ", " + kRed + "]",
        std::string(R"({ "name" : "paint", "arguments":{"colour":"red"} })")}) {
    INFO(text);
    CHECK(accepts(*calls, text));
    CHECK_FALSE(accepts(*text_grammar({}, kTools), text));
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
  const auto either = call_grammar({}, kTools, {.max_calls = 2});
  for (const std::string& text :
       {std::string("hello"), std::string(), tagged(kParis), std::string("```cpp\nint i;\n```"), nobody})
    CHECK(accepts(*either, text));
  for (const std::string& text : {tagged(green), tagged(nobody), green, "```json\n" + green + "\n```"})
    CHECK_FALSE(accepts(*either, text));
}

TEST_CASE("an answer in JSON is a text whatever tools are offered, unless it begins as a call", "[constrain]") {
  for (const auto& grammar : {call_grammar({}, kTools, {}), text_grammar({}, kTools)}) {
    for (const char* yes :
         {"{}", " [1]", "```json\n{}\n```", "`x`", R"({"capital": "Paris"})", R"([{"a": 1}, {"name": "Anna"}])",
          R"({"name": "Anna", "arguments": {}})", R"({"name": "weatherman"})", R"({"name": "weath)", R"({"name)",
          R"({"id": 1, "name": "weather"})", "{\"id\": 1,\n \"name\": \"weather\"\n}", "[\n {}\n]", "```js\n{\n}```",
          "It is 4 < 5, <b>and</b> <tool: nothing.", "So:\n```python\nprint(1)\n```"}) {
      CAPTURE(yes);
      CHECK(accepts(*grammar, yes));
    }
    for (const char* no : {"no <tool_call>", "<tool_call>", R"({"name": "weather"})", R"([ {"name":"paint", "a": 1}])",
                           "\n```json\n{\n \"name\" : \"weather\"\n}\n```", "{\n \"id\": 1\n}", "{ \n \"id\": 1}",
                           "```json\n{\n}```", "```\n{\"name\": \"paint\", \"x\": 1}```"}) {
      CAPTURE(no);
      CHECK_FALSE(accepts(*grammar, no));
    }
  }
}

TEST_CASE("many tools with long names keep their grammar small", "[constrain]") {
  std::vector<ToolSchema> tools;
  for (int i = 0; i < 200; ++i)
    tools.push_back({"tool_with_a_long_name_" + std::to_string(i), "", R"({"type": "object"})"});
  const auto grammar = call_grammar({}, tools, {});
  CHECK(grammar->nodes() < 60000);
  CHECK(accepts(*grammar, R"({"name": "Anna"})"));
  CHECK(accepts(*grammar, R"({"name": "tool_with_a_long_name_7", "arguments": {}})"));
}

TEST_CASE("text in front of calls may be forbidden or required", "[constrain]") {
  const std::string call = tagged(kRed);
  const auto forbidden = call_grammar({}, kTools, {.text = TextBefore::forbidden});
  CHECK(accepts(*forbidden, call));
  CHECK(accepts(*forbidden, "a text"));
  CHECK_FALSE(accepts(*forbidden, "a text" + call));
  const auto required = call_grammar({}, kTools, {.text = TextBefore::required});
  CHECK_FALSE(accepts(*required, call));
  CHECK(accepts(*required, "a text"));
  CHECK(accepts(*required, "a text" + call));
  CHECK_FALSE(accepts(*required, kRed));
  const auto needed = call_grammar({}, kTools, {.needed = true, .text = TextBefore::forbidden});
  CHECK(accepts(*needed, call));
  CHECK_FALSE(accepts(*needed, "a text"));
}

TEST_CASE("lists of calls, and calls without a marker, have the model's form", "[constrain]") {
  const CallSyntax list{.first = "[TOOL_CALLS] [", .open = "", .close = "", .between = ", ", .last = "]"};
  CHECK(list.marker() == "[TOOL_CALLS]");
  const auto listed = call_grammar(list, kTools, {.max_calls = 3});
  CHECK(accepts(*listed, "[TOOL_CALLS] [" + kParis + ", " + kRed + "]"));
  CHECK_FALSE(accepts(*listed, "[TOOL_CALLS] [" + kParis + "][TOOL_CALLS] [" + kRed + "]"));
  const CallSyntax bare{.open = "", .close = "", .several = false, .arguments_key = "parameters"};
  const std::string call = R"({"name": "paint", "parameters": {"colour": "blue"}})";
  CHECK(accepts(*call_grammar(bare, kTools, {.max_calls = 3}), call));
  CHECK_FALSE(accepts(*call_grammar(bare, kTools, {.max_calls = 3}), kRed));
  CHECK(accepts(*text_grammar(bare, kTools), "Hello <tool_call>"));
  CHECK_FALSE(accepts(*text_grammar(bare, kTools), call));
}

TEST_CASE("a text without calls is any text in which the marker does not stand", "[constrain]") {
  for (const std::string marker : {"<ab>", "<a<ab>", "aab", "<<"}) {
    const CallSyntax syntax{.open = marker, .close = "</ab>"};
    const auto text = text_grammar(syntax, {});
    std::mt19937 random(5);
    int with = 0;
    for (int i = 0; i < 10000; ++i) {
      std::string sample;
      for (std::size_t n = random() % 12; n > 0; --n) {
        if (random() % 4 == 0) sample += marker.substr(0, 1 + random() % marker.size());
        sample += "<ab>x\n"[random() % 6];
      }
      const bool marked = sample.find(marker) != std::string::npos;
      with += marked ? 1 : 0;
      INFO(sample);
      CHECK(accepts(*text, sample) == !marked);
    }
    CHECK(with > 20);
  }
}

TEST_CASE("what of a tool's schema cannot be enforced is named with the tool", "[constrain]") {
  const auto error_of = [](const char* schema) {
    const std::vector<ToolSchema> tools = {{"plain", "", R"({"type": "object"})"}, {"odd", "", schema}};
    try {
      return std::string(call_grammar({}, tools, {})->unenforced().at(0));
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
  CHECK_FALSE(accepts(*call_grammar({}, tools, {}), text));
  tools[0].enforced = false;
  CHECK(accepts(*call_grammar({}, tools, {}), text));
}

}  // namespace call_grammar_test
