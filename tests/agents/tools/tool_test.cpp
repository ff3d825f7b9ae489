// SPDX-License-Identifier: Apache-2.0
#include "agents/tools/tool.h"

#include <catch2/catch.hpp>

namespace callable_tools_test {

using namespace baton;

namespace {

CallableTools two_tools(CallLimits limits = {}, std::shared_ptr<const Grammar> answer = nullptr) {
  const std::string city = R"({"properties": {"city": {"type": "string"}}, "required": ["city"]})";
  return {{{{"weather", "", city}, {}, nullptr}, {{"route", "", city}, {}, nullptr}}, limits, std::move(answer)};
}

std::vector<ModelCall> calls_of(const std::string& answer, const ToolFormat& format = {}) {
  return calls_in(answer, format, two_tools());
}

const std::string kParis = R"({"name": "weather", "arguments": {"city": "Paris"}})";

}  // namespace

TEST_CASE("calls are read in the model's own form") {
  for (const std::string& answer :
       {"<tool_call>\n" + kParis + "\n</tool_call>", "Let me see. <tool_call>" + kParis + "</tool_call> Done.",
        "<tool_call>" + kParis, kParis, "```json\n" + kParis + "\n```", "\n[" + kParis + "]"}) {
    INFO(answer);
    const auto calls = calls_of(answer);
    REQUIRE(calls.size() == 1);
    CHECK(calls[0].tool == "weather");
    CHECK(calls[0].arguments == R"({"city":"Paris"})");
    CHECK(calls[0].problem.empty());
  }
  ToolFormat listed;
  listed.syntax = {.first = "[TOOL_CALLS] [", .open = "", .close = "", .between = ", ", .last = "]"};
  CHECK(calls_of("[TOOL_CALLS][" + kParis + ", " + kParis + "]", listed).size() == 2);
  CHECK(calls_of("<tool_call>" + kParis + "</tool_call>\n<tool_call>" + kParis + "</tool_call>").size() == 2);
  CHECK(calls_of(kParis + "\n" + kParis).size() == 2);
  ToolFormat bare;
  bare.syntax = {.open = "", .close = "", .several = false, .arguments_key = "parameters"};
  CHECK(calls_of(R"({"name": "weather", "parameters": {"city": "a"}})", bare).size() == 1);
  CHECK(calls_of(R"({"name": "weather", "arguments": "{\"city\": \"a\"}"})")[0].arguments == R"({"city":"a"})");
}

TEST_CASE("a call ends behind the quotes that its arguments escape") {
  const std::string quoted = R"({"name": "weather", "arguments": {"city": "the \"city}\" of light"}})";
  const std::string backslash = R"({"name": "weather", "arguments": {"city": "C:\\"}})";
  for (const std::string& answer :
       {"<tool_call>" + quoted + "</tool_call><tool_call>" + backslash + "</tool_call>",
        "<tool_call>[" + quoted + ", " + backslash + "]</tool_call> Done.", quoted + "\n" + backslash}) {
    INFO(answer);
    const auto calls = calls_of(answer);
    REQUIRE(calls.size() == 2);
    CHECK(calls[0].problem.empty());
    CHECK(calls[0].arguments == R"({"city":"the \"city}\" of light"})");
    CHECK(calls[1].problem.empty());
    CHECK(calls[1].arguments == R"({"city":"C:\\"})");
  }
}

TEST_CASE("an answer that is no call stays one") {
  for (const char* answer : {"", "It rains.", "{\"city\": \"Paris\"}", R"({"name": "Anna", "arguments": {}})", "[1, 2]",
                             "{", "```cpp\nint i;\n```", "```json\n{\"a\": 1}\n```"}) {
    INFO(answer);
    CHECK(calls_of(answer).empty());
  }
}

TEST_CASE("an object of JSON that does not fit a tool's schema is an answer, but in the model's own form") {
  for (const char* answer :
       {R"({"name": "weather", "arguments": {"city": 1}})", R"({"name": "weather", "arguments": {}})",
        R"({"name": "weather"})", R"([{"name": "weather", "arguments": {"city": "a"}}, {"b": 1}])",
        R"({"name": "weather", "arguments": {"city": "a"}} is what I would call)", R"({"name": "weath)"})
    CHECK(calls_of(answer).empty());
  CHECK(calls_of(R"({"arguments": {"city": "a"}, "name": "weather"})").size() == 1);
  ToolFormat own;
  own.syntax = {.open = "", .close = "", .several = false};
  const auto wrong = calls_of(R"({"name": "weather", "arguments": {"city": 1}})", own);
  REQUIRE(wrong.size() == 1);
  CHECK_THAT(wrong[0].problem, Catch::Contains("/city"));
  for (const ToolFormat& format : {ToolFormat(), own}) {
    const auto cut = calls_of(R"({"name": "weather", "arguments": {"city": "Pa)", format);
    REQUIRE(cut.size() == 1);
    CHECK_THAT(cut[0].problem, Catch::Contains("is not complete"));
  }
  const auto any = schema_grammar(R"({"type": "object"})");
  const std::string call = kParis;
  CHECK(calls_in(call, {}, two_tools({}, any)).empty());
  CHECK(calls_in(call, own, two_tools({}, any)).empty());
  CHECK(calls_in("<tool_call>" + call + "</tool_call>", {}, two_tools({}, any)).size() == 1);
  CHECK(calls_in(call, {}, two_tools({.choice = ToolChoice::none})).empty());
}

TEST_CASE("a broken call says what is wrong") {
  const auto problem = [](const std::string& call) {
    const auto calls = calls_of("<tool_call>" + call + "</tool_call>");
    REQUIRE(calls.size() == 1);
    return calls[0].problem;
  };
  CHECK_THAT(problem("{\"name\": "), Catch::StartsWith("the call is not complete: "));
  CHECK_THAT(problem("{\"name\": ]}"), Catch::StartsWith("the call is not JSON: "));
  CHECK_THAT(problem("weather(Paris)"), Catch::StartsWith("the call is not JSON: "));
  CHECK(problem(R"({"tool": "weather"})") == "the call is no object with the keys 'name' and 'arguments'");
  CHECK(problem(R"({"name": "sing"})") == "there is no tool 'sing'; the tools are: weather route");
  CHECK(problem(R"({"name": "weather", "arguments": [1]})") == "'arguments' is no object");
  CHECK_THAT(problem(R"({"name": "weather", "arguments": {"city": 1}})"), Catch::Contains("/city"));
  CHECK_THAT(problem(R"({"name": "weather"})"), Catch::Contains("city"));
  CHECK(problem("[" + std::string(100000, '[')).size() < 600);
  CHECK(calls_of("<tool_call>" + std::string(1000, '<') + "tool_call>").size() == 1);
}

TEST_CASE("many calls in one answer are read to a bound") {
  std::string answer;
  for (int i = 0; i < 500; ++i) answer += "<tool_call>" + kParis + "</tool_call>";
  CHECK(calls_of(answer).size() == 64);
}

TEST_CASE("one grammar is made for each form of calls and number of calls") {
  const CallableTools tools = two_tools();
  const auto grammar = tools.grammar({}, 2);
  CHECK(grammar == tools.grammar({}, 2));
  CHECK(grammar != tools.grammar({}, 0));
  CHECK(accepts(*grammar, "<tool_call>\n" + kParis + "\n</tool_call>"));
  CHECK(accepts(*grammar, "Hello."));
  CHECK_FALSE(accepts(*tools.grammar({}, 0), "<tool_call>\n" + kParis + "\n</tool_call>"));
}

TEST_CASE("what an output enforces stands next to the calls") {
  const std::vector<std::string> texts = {"yes", "no"};
  const auto answer = enum_grammar(texts);
  const CallableTools tools = two_tools({}, answer);
  CHECK(accepts(*tools.grammar({}, 1), "yes"));
  CHECK(accepts(*tools.grammar({}, 1), "<tool_call>\n" + kParis + "\n</tool_call>"));
  CHECK_FALSE(accepts(*tools.grammar({}, 1), "maybe"));
  CHECK(tools.grammar({}, 0) == answer);
  CallLimits free;
  free.enforce = false;
  CHECK(two_tools(free).grammar({}, 1) == nullptr);
}

TEST_CASE("a call may be required, of one tool, or of none, in the first answer") {
  const std::string paris = "<tool_call>\n" + kParis + "\n</tool_call>";
  const std::string route =
      std::string("<tool_call>\n") + R"({"name": "route", "arguments": {"city": "a"}})" + "\n</tool_call>";
  const CallableTools required = two_tools({.choice = ToolChoice::required});
  CHECK(accepts(*required.grammar({}, 2, true), paris));
  CHECK_FALSE(accepts(*required.grammar({}, 2, true), "It rains."));
  CHECK(accepts(*required.grammar({}, 2), "It rains."));
  const CallableTools one = two_tools({.choice = ToolChoice::required, .tool = "route"});
  CHECK(accepts(*one.grammar({}, 2, true), route));
  CHECK_FALSE(accepts(*one.grammar({}, 2, true), paris));
  CHECK(accepts(*one.grammar({}, 2), paris));
  const CallableTools unknown = two_tools({.choice = ToolChoice::required, .tool = "sing"});
  CHECK_THROWS_WITH(unknown.grammar({}, 2, true), "tool_choice: there is no tool 'sing'");
  CHECK(unknown.grammar({}, 2) != nullptr);
  const CallableTools none = two_tools({.choice = ToolChoice::none});
  CHECK_FALSE(accepts(*none.grammar({}, 2, true), paris));
  CHECK(accepts(*none.grammar({}, 2, true), "It rains."));
  const std::vector<std::string> texts = {"yes", "no"};
  const CallableTools with_answer = two_tools({.choice = ToolChoice::required}, enum_grammar(texts));
  CHECK_FALSE(accepts(*with_answer.grammar({}, 2, true), "yes"));
  CHECK(accepts(*with_answer.grammar({}, 2), "yes"));
}

TEST_CASE("a result is shown without control characters, and a long one without its middle") {
  CHECK(shown_result("a\tb\n\x1b[31m\x07", 100) == "a\tb\n [31m ");
  CHECK(shown_result("\xff", 100) == "\xef\xbf\xbd");
  CHECK(shown_result(std::string(50, 'a') + std::string(50, 'b'), 20) ==
        std::string(10, 'a') + "\n[... 80 bytes left out ...]\n" + std::string(10, 'b'));
  std::string euros;
  for (int i = 0; i < 30; ++i) euros += "\xe2\x82\xac";
  const std::string cut = shown_result(euros, 20);
  CHECK(cut.starts_with("\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\n[... 72 bytes"));
}

}  // namespace callable_tools_test
