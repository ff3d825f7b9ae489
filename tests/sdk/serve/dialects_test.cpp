// SPDX-License-Identifier: Apache-2.0
// Anthropic's Messages and OpenAI's Responses: requests as chat completions, and answers in their own forms.
#include <catch2/catch.hpp>

#include "sdk/serve/served_run.h"
#include "tests/sdk/serve/running_server.h"

namespace dialects_test {

namespace {

using baton::serve::ApiError;
using baton::serve::read_messages_request;
using baton::serve::read_response_request;
using baton::serve::StreamEvent;
using baton::test::HttpReply;
using baton::test::kServedQuestion;
using baton::test::plain_served;
using baton::test::RunningServer;
using nlohmann::json;

json of_messages(const json& body) { return json::parse(read_messages_request(body.dump()).chat); }
json of_response(const json& body) { return json::parse(read_response_request(body.dump()).chat); }

/// The data of the events of a stream, each with its name as its type.
std::vector<json> events_in(const std::string& stream) {
  std::vector<json> events;
  for (std::size_t at = 0; (at = stream.find("event: ", at)) != std::string::npos;) {
    const std::size_t line = stream.find('\n', at), end = stream.find("\n\n", at);
    const std::string name = stream.substr(at + 7, line - at - 7), data = stream.substr(line + 7, end - line - 7);
    events.push_back(json::parse(data));
    CHECK(events.back()["type"] == name);
    at = end;
  }
  return events;
}

const json kTool = {{"name", "f"}, {"description", "d"}, {"input_schema", {{"type", "object"}}}};

/// The chunks of an answer that calls a tool twice.
std::vector<json> chunks_of_calls() {
  const auto chunk = [](json choices, json usage = nullptr) {
    return json{
        {"id", "chatcmpl-1f"}, {"created", 7}, {"model", "m"}, {"choices", std::move(choices)}, {"usage", usage}};
  };
  const auto call = [](int index) {
    return json{{"index", index},
                {"id", "call_" + std::to_string(index)},
                {"function", {{"name", "f"}, {"arguments", R"({"a":)" + std::to_string(index) + "}"}}}};
  };
  const auto choice = [](json delta, json reason = nullptr) {
    return json::array({{{"index", 0}, {"delta", std::move(delta)}, {"finish_reason", reason}}});
  };
  return {chunk(choice({{"role", "assistant"}, {"content", ""}})), chunk(choice({{"reasoning_content", "hm"}})),
          chunk(choice({{"tool_calls", {call(0), call(1)}}})), chunk(choice(json::object(), "tool_calls")),
          chunk(json::array(), {{"prompt_tokens", 9},
                                {"completion_tokens", 4},
                                {"total_tokens", 13},
                                {"prompt_tokens_details", {{"cached_tokens", 5}}},
                                {"completion_tokens_details", {{"reasoning_tokens", 1}}}})};
}

std::vector<json> translated(baton::serve::Dialect& dialect) {
  std::vector<StreamEvent> events;
  for (const json& chunk : chunks_of_calls())
    for (StreamEvent& event : dialect.chunk(chunk.dump())) events.push_back(std::move(event));
  for (StreamEvent& event : dialect.end()) events.push_back(std::move(event));
  std::vector<json> out;
  for (const StreamEvent& event : events) out.push_back(json::parse(event.json));
  return out;
}

}  // namespace

TEST_CASE("a request of Anthropic's Messages is a chat") {
  const json body = {
      {"model", "m"},
      {"max_tokens", 9},
      {"system", {{{"type", "text"}, {"text", "Be brief."}}}},
      {"stop_sequences", {"x"}},
      {"tools", {kTool}},
      {"tool_choice", {{"type", "any"}, {"disable_parallel_tool_use", true}}},
      {"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}},
      {"metadata", {{"user_id", "u"}}},
      {"messages",
       {{{"role", "user"}, {"content", "Hi"}},
        {{"role", "assistant"},
         {"content",
          {{{"type", "thinking"}, {"thinking", "hm"}},
           {{"type", "text"}, {"text", "Well."}},
           {{"type", "tool_use"}, {"id", "c1"}, {"name", "f"}, {"input", {{"a", 1}}}}}}},
        {{"role", "user"},
         {"content",
          {{{"type", "tool_result"}, {"tool_use_id", "c1"}, {"content", {{{"type", "text"}, {"text", "42"}}}}},
           {{"type", "text"}, {"text", "So?"}}}}}}}};
  const json chat = of_messages(body);
  CHECK(chat["messages"] ==
        json::parse(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
          {"role": "assistant", "content": "Well.", "tool_calls": [{"id": "c1", "type": "function",
           "function": {"name": "f", "arguments": "{\"a\":1}"}}]},
          {"role": "tool", "tool_call_id": "c1", "content": "42"}, {"role": "user", "content": "So?"}])"));
  CHECK(chat["stop"] == json{"x"});
  CHECK(chat["tool_choice"] == "required");
  CHECK(chat["parallel_tool_calls"] == false);
  CHECK(chat["thinking_budget"] == 1024);
  CHECK(chat["tools"][0]["function"]["parameters"]["type"] == "object");

  json wrong = body;
  wrong["top_n"] = 1;
  CHECK_THROWS_WITH(of_messages(wrong), Catch::Contains("top_n"));
  wrong = body;
  wrong.erase("max_tokens");
  CHECK_THROWS_AS(of_messages(wrong), ApiError);
  wrong = body;
  wrong["messages"][0]["content"] = {{{"type", "image"}}};
  CHECK_THROWS_WITH(of_messages(wrong), Catch::Contains("messages[0].content"));
  for (const char* text : {"", "[]", "{", R"({"model": "m", "max_tokens": 1, "messages": []})",
                           R"({"model": "m", "max_tokens": 1, "messages": [{"role": "system", "content": "x"}]})"})
    CHECK_THROWS_AS(read_messages_request(text), ApiError);
}

TEST_CASE("a request of OpenAI's Responses is a chat") {
  const json chat = of_response(
      {{"model", "m"},
       {"instructions", "Be brief."},
       {"max_output_tokens", 9},
       {"reasoning", {{"effort", "low"}}},
       {"tools", {{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}, {"strict", true}}}},
       {"tool_choice", {{"type", "function"}, {"name", "f"}}},
       {"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", {{"type", "object"}}}}}}},
       {"input",
        {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "Hi"}}}}},
         {{"type", "reasoning"}, {"summary", json::array()}},
         {{"type", "function_call"}, {"call_id", "c1"}, {"name", "f"}, {"arguments", "{}"}},
         {{"type", "function_call"}, {"call_id", "c2"}, {"name", "f"}, {"arguments", "{}"}},
         {{"type", "function_call_output"}, {"call_id", "c1"}, {"output", "42"}},
         {{"type", "function_call_output"}, {"call_id", "c2"}, {"output", "43"}}}}});
  CHECK(chat["max_tokens"] == 9);
  CHECK(chat["reasoning_effort"] == "low");
  CHECK(chat["tool_choice"]["function"]["name"] == "f");
  CHECK(chat["response_format"]["json_schema"]["schema"]["type"] == "object");
  REQUIRE(chat["messages"].size() == 5);
  CHECK(chat["messages"][2]["tool_calls"].size() == 2);  // of one answer
  CHECK(chat["messages"][4] == json{{"role", "tool"}, {"tool_call_id", "c2"}, {"content", "43"}});
  CHECK(of_response({{"model", "m"}, {"input", "Hi"}})["messages"][0]["content"] == "Hi");
  for (const char* text : {R"({"model": "m"})", R"({"model": "m", "input": []})",
                           R"({"model": "m", "input": "x", "previous_response_id": "r"})",
                           R"({"model": "m", "input": "x", "tools": [{"type": "web_search"}]})",
                           R"({"model": "m", "input": [{"type": "item_reference", "id": "i"}]})"})
    CHECK_THROWS_AS(read_response_request(text), ApiError);
}

TEST_CASE("calls come as events in the order of each interface") {
  const auto types = [](const std::vector<json>& events) {
    std::vector<std::string> out;
    for (const json& event : events) out.push_back(event["type"]);
    return out;
  };
  const json message = {{"model", "m"}, {"max_tokens", 9}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  const std::vector<json> anthropic = translated(*read_messages_request(message.dump()).dialect);
  const std::vector<std::string> call = {"content_block_start", "content_block_delta", "content_block_stop"};
  std::vector<std::string> expected = {"message_start"};
  for (int i = 0; i < 3; ++i) expected.insert(expected.end(), call.begin(), call.end());  // the thinking, and two calls
  expected.insert(expected.end(), {"message_delta", "message_stop"});
  CHECK(types(anthropic) == expected);
  CHECK(anthropic[8]["delta"]["partial_json"] == R"({"a":1})");
  CHECK(anthropic[8]["index"] == 2);
  CHECK(anthropic[10]["delta"]["stop_reason"] == "tool_use");
  CHECK(anthropic[10]["usage"]["input_tokens"] == 4);
  CHECK(anthropic[10]["usage"]["cache_read_input_tokens"] == 5);

  const std::vector<json> responses = translated(*read_response_request(R"({"model": "m", "input": "Hi"})").dialect);
  for (std::size_t i = 0; i < responses.size(); ++i) CHECK(responses[i]["sequence_number"] == i);
  const json& whole = responses.back()["response"];
  CHECK(responses.back()["type"] == "response.completed");
  REQUIRE(whole["output"].size() == 3);
  CHECK(whole["output"][0]["content"][0]["text"] == "hm");
  CHECK(whole["output"][2]["call_id"] == "call_1");
  CHECK(whole["usage"]["input_tokens_details"]["cached_tokens"] == 5);
}

TEST_CASE("both interfaces answer whole and as a stream with the same text, and errors have their form") {
  const RunningServer server({}, plain_served());
  for (const char* model : {"nano", "team"}) {
    json body = {
        {"model", model}, {"max_tokens", 24}, {"messages", {{{"role", "user"}, {"content", kServedQuestion}}}}};
    const HttpReply reply = server.ask("POST", "/v1/messages", body.dump());
    INFO(reply.body);
    REQUIRE(reply.status == 200);
    const json whole = json::parse(reply.body);
    CHECK(whole["type"] == "message");
    body["stream"] = true;
    std::string text;
    for (const json& event : events_in(server.ask("POST", "/v1/messages", body.dump()).body))
      if (event["type"] == "content_block_delta") text += event["delta"].value("text", "");
    CHECK(text == whole["content"].back()["text"]);

    json asked = {{"model", model}, {"max_output_tokens", 24}, {"input", kServedQuestion}};
    const json response = json::parse(server.ask("POST", "/v1/responses", asked.dump()).body);
    CHECK(response["output"].back()["content"][0]["text"] == text);
    asked["stream"] = true;
    const std::vector<json> events = events_in(server.ask("POST", "/v1/responses", asked.dump()).body);
    REQUIRE(!events.empty());
    CHECK(events.front()["type"] == "response.created");
    CHECK(events.back()["response"]["output"].back()["content"][0]["text"] == text);
    CHECK(events.back()["response"]["status"] == response["status"]);
  }
  const json missing = {{"model", "none"}, {"max_tokens", 1}, {"messages", {{{"role", "user"}, {"content", "Hi"}}}}};
  const HttpReply refused = server.ask("POST", "/v1/messages", missing.dump());
  CHECK(refused.status == 404);
  CHECK(json::parse(refused.body)["type"] == "error");
  CHECK(json::parse(refused.body)["error"]["type"] == "not_found_error");
  CHECK(json::parse(server.ask("POST", "/v1/messages", "{").body)["type"] == "error");
  CHECK(json::parse(server.ask("GET", "/v1/messages").body)["type"] == "error");
}

TEST_CASE("a key may come as x-api-key") {
  baton::serve::ServeOptions options;
  options.keys = {"first-key-1", "second-key-2"};
  const RunningServer server(options, plain_served());
  CHECK(server.ask("GET", "/v1/models", "", "x-api-key: second-key-2\r\n").status == 200);
  CHECK(server.ask("GET", "/v1/models", "", "x-api-key: third-key-3\r\n").status == 401);
  CHECK(server.ask("GET", "/v1/models", "", "x-api-key: first-key-1\r\nAuthorization: Bearer wrong-key\r\n").status ==
        401);
}

}  // namespace dialects_test
