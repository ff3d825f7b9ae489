// SPDX-License-Identifier: Apache-2.0
// A plain model that is served: what requests say about sampling, tools and the form of answers, with the shipped nano
// model.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <set>

#include "tests/sdk/serve/running_server.h"

namespace plain_model_test {

namespace {

using baton::test::events_of;
using baton::test::HttpReply;
using baton::test::kServedQuestion;
using baton::test::plain_served;
using baton::test::RunningServer;
using nlohmann::json;

const char* const kChat = "/v1/chat/completions";

json body_of(const json& more = json::object()) {
  json body = {{"model", "nano"}, {"max_tokens", 24}, {"messages", {{{"role", "user"}, {"content", kServedQuestion}}}}};
  body.update(more);
  return body;
}

json ask(const RunningServer& server, const json& body, int status = 200) {
  const HttpReply reply = server.ask("POST", kChat, body.dump());
  INFO(reply.body);
  REQUIRE(reply.status == status);
  return json::parse(reply.body);
}

std::string text_of(const json& reply, int index = 0) { return reply["choices"][index]["message"]["content"]; }

json tool(const std::string& name, const json& properties) {
  const json parameters = {
      {"type", "object"}, {"properties", properties}, {"required", json::array()}, {"additionalProperties", false}};
  return {{"type", "function"}, {"function", {{"name", name}, {"description", "A tool."}, {"parameters", parameters}}}};
}

/// The choices of all chunks.
std::vector<json> streamed_choices(const RunningServer& server, json body) {
  body["stream"] = true;
  std::vector<json> choices;
  for (const std::string& event : events_of(server.ask("POST", kChat, body.dump()).body)) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    choices.insert(choices.end(), chunk["choices"].begin(), chunk["choices"].end());
  }
  return choices;
}

}  // namespace

TEST_CASE("a plain model answers a conversation, as a workflow of one agent does") {
  const RunningServer server({}, plain_served());
  const json reply = ask(server, body_of());
  CHECK(reply["model"] == "nano");
  CHECK(!text_of(reply).empty());
  CHECK(reply["usage"]["completion_tokens"] <= 24);
  CHECK(reply["baton"]["seed"].is_number_unsigned());
  CHECK(text_of(ask(server, body_of())) == text_of(reply));  // greedy
  const json models = json::parse(server.ask("GET", "/v1/models").body);
  CHECK(models["data"].size() == 3);
  std::string text;
  for (const json& choice : streamed_choices(server, body_of())) text += choice["delta"].value("content", "");
  CHECK(text == text_of(reply));
  const json completion = {{"model", "nano"}, {"prompt", kServedQuestion}, {"max_tokens", 24}};
  CHECK(json::parse(server.ask("POST", "/v1/completions", completion.dump()).body)["choices"][0]["text"] ==
        text_of(reply));
}

TEST_CASE("the request says how it samples") {
  const RunningServer server({}, plain_served());
  const json hot = {{"temperature", 3.0}, {"seed", 5}};
  const std::string first = text_of(ask(server, body_of(hot)));
  CHECK(text_of(ask(server, body_of(hot))) == first);
  CHECK(text_of(ask(server, body_of({{"temperature", 3.0}, {"seed", 6}}))) != first);
  CHECK(text_of(ask(server, body_of({{"temperature", 3.0}}))) != text_of(ask(server, body_of({{"temperature", 3.0}}))));
  CHECK(text_of(ask(server, body_of({{"temperature", 3.0}, {"top_k", 1}}))) == text_of(ask(server, body_of())));
  CHECK(text_of(ask(server, body_of({{"temperature", 3.0}, {"top_p", 1e-6}}))) == text_of(ask(server, body_of())));
  CHECK(text_of(ask(server, body_of({{"temperature", 3.0}, {"min_p", 1.0}}))) == text_of(ask(server, body_of())));
  CHECK(text_of(ask(server, body_of({{"frequency_penalty", -2.0}, {"presence_penalty", -2.0}}))) !=
        text_of(ask(server, body_of())));

  const json two = ask(server, body_of({{"max_completion_tokens", 2}, {"max_tokens", nullptr}}));
  CHECK(two["usage"]["completion_tokens"] == 2);
  CHECK(two["choices"][0]["finish_reason"] == "length");
  const std::string whole = text_of(ask(server, body_of()));
  const std::string stop = whole.substr(whole.size() / 2, 3);
  CHECK(text_of(ask(server, body_of({{"stop", stop}}))) == whole.substr(0, whole.find(stop)));
  CHECK(text_of(ask(server, body_of({{"stop", {"nowhere in it", stop}}}))) == whole.substr(0, whole.find(stop)));
}

TEST_CASE("several answers to one prompt differ by their seeds, whole and streamed") {
  const RunningServer server({}, plain_served());
  const json hot = {{"temperature", 3.0}, {"seed", 5}, {"n", 3}};
  const json reply = ask(server, body_of(hot));
  REQUIRE(reply["choices"].size() == 3);
  std::vector<std::string> texts;
  for (int i = 0; i < 3; ++i) {
    CHECK(reply["choices"][i]["index"] == i);
    texts.push_back(text_of(reply, i));
    CHECK(text_of(ask(server, body_of({{"temperature", 3.0}, {"seed", 5 + i}}))) == texts.back());
  }
  CHECK(std::set<std::string>(texts.begin(), texts.end()).size() == 3);
  CHECK(reply["usage"]["prompt_tokens"] == ask(server, body_of())["usage"]["prompt_tokens"]);
  std::vector<std::string> pieces(3);
  for (const json& choice : streamed_choices(server, body_of(hot)))
    pieces.at(choice["index"].get<std::size_t>()) += choice["delta"].value("content", "");
  CHECK(pieces == texts);
}

TEST_CASE("an answer has the form that the request gives") {
  const RunningServer server({}, plain_served());
  const json schema = {{"type", "object"},
                       {"properties",
                        {{"apples", {{"type", "integer"}, {"minimum", 0}, {"maximum", 99}}},
                         {"fruit", {{"enum", {"apple", "${env:HOME}", "{{ pear }}"}}}}}},
                       {"required", {"apples", "fruit"}},
                       {"additionalProperties", false}};
  const json format = {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"schema", schema}}}};
  for (const int seed : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const json reply =
        ask(server, body_of({{"response_format", format}, {"max_tokens", 200}, {"temperature", 2.0}, {"seed", seed}}));
    const json answer = json::parse(text_of(reply));
    CHECK(answer["apples"].get<int>() <= 99);
    const std::string fruit = answer["fruit"];
    CHECK((fruit == "apple" || fruit == "${env:HOME}" || fruit == "{{ pear }}"));
  }
  const std::string before = R"({"model": "nano", "max_tokens": 60, "messages": [{"role": "user", "content": "x"}],
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object", "additionalProperties": false,
    "properties": {"zeal": {"type": "boolean"}, "apple": {"type": "boolean"}}, "required": ["zeal", "apple"]}}}})";
  const std::string in_order = text_of(json::parse(server.ask("POST", kChat, before).body));
  CHECK(in_order.find("zeal") < in_order.find("apple"));  // as the schema has them

  const json any = ask(server, body_of({{"response_format", {{"type", "json_object"}}}, {"max_tokens", 3}}));
  CHECK(any["choices"][0]["finish_reason"] == "length");
  CHECK(text_of(any).starts_with("{"));
  CHECK(ask(server, body_of({{"response_format", {{"type", "text"}}}}))["choices"][0]["finish_reason"].is_string());

  const json wrong = {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "elephant"}}}}}};
  CHECK(ask(server, body_of({{"response_format", wrong}}), 400)["error"]["param"] == "response_format");
  CHECK(ask(server, body_of({{"response_format", format}, {"stop", "x"}}), 400)["error"]["param"] == "stop");
}

TEST_CASE("calls of the client's tools are the answer, and their results go on") {
  const RunningServer server({}, plain_served());
  const json number = {{"a", {{"type", "integer"}, {"minimum", 0}, {"maximum", 9}}}};
  const json tools = {tool("getWeather", number), tool("python", number), tool("web-search.v2", number)};
  for (const char* name : {"getWeather", "python", "web-search.v2"}) {
    const json choice = {{"type", "function"}, {"function", {{"name", name}}}};
    const json reply =
        ask(server,
            body_of({{"tools", tools}, {"tool_choice", choice}, {"parallel_tool_calls", false}, {"max_tokens", 200}}));
    const json& message = reply["choices"][0]["message"];
    CHECK(reply["choices"][0]["finish_reason"] == "tool_calls");
    CHECK(message["content"].is_null());
    REQUIRE(message["tool_calls"].size() == 1);
    CHECK(message["tool_calls"][0]["function"]["name"] == name);
    CHECK(json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>()).is_object());

    json next = body_of({{"tools", tools}, {"tool_choice", "none"}});
    next["messages"].push_back(message);
    next["messages"].push_back({{"role", "tool"}, {"tool_call_id", message["tool_calls"][0]["id"]}, {"content", "19"}});
    const json after = ask(server, next);
    CHECK(after["choices"][0]["finish_reason"] != "tool_calls");
    CHECK(after["usage"]["prompt_tokens"] > reply["usage"]["prompt_tokens"]);
  }
  json calls = json::array();
  std::string reason;
  const json asked = body_of({{"tools", tools}, {"tool_choice", "required"}, {"max_tokens", 200}});
  for (const json& choice : streamed_choices(server, asked)) {
    const json made = choice["delta"].value("tool_calls", json::array());
    calls.insert(calls.end(), made.begin(), made.end());
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
  }
  CHECK(reason == "tool_calls");
  REQUIRE(!calls.empty());
  CHECK(calls[0]["index"] == 0);
  CHECK(!calls[0]["id"].get<std::string>().empty());
}

TEST_CASE("a request reads nothing of the server's environment") {
  const RunningServer server({}, plain_served());
  ::setenv("BATON_TEST_OF_SERVER", "12", 1);
  const std::string whole = text_of(ask(server, body_of()));
  REQUIRE(whole.find("12") != std::string::npos);
  CHECK(text_of(ask(server, body_of({{"stop", "${env:BATON_TEST_OF_SERVER}"}}))) == whole);
  CHECK(text_of(ask(server, body_of({{"stop", "${env:NOT_SET_ANYWHERE}"}}))) == whole);
  CHECK(text_of(ask(server, body_of({{"stop", "${env:"}}))) == whole);
  CHECK(text_of(ask(server, body_of({{"chat_template_kwargs", {{"a", "${env:NOT_SET_ANYWHERE}"}}}}))) == whole);
  ::unsetenv("BATON_TEST_OF_SERVER");
}

TEST_CASE("log probabilities come with each token, whole and streamed") {
  const RunningServer server({}, plain_served());
  const json reply = ask(server, body_of({{"logprobs", true}, {"top_logprobs", 3}}));
  const json& content = reply["choices"][0]["logprobs"]["content"];
  CHECK(content.size() == reply["usage"]["completion_tokens"]);
  std::string text;
  for (const json& token : content) {
    text += token["token"].get<std::string>();
    REQUIRE(token["top_logprobs"].size() == 3);
    CHECK(token["top_logprobs"][0]["token"] == token["token"]);  // greedy
    CHECK(token["top_logprobs"][0]["logprob"] == token["logprob"]);
    CHECK(token["logprob"].get<double>() <= 0);
    CHECK(token["top_logprobs"][1]["logprob"] <= token["logprob"]);
    CHECK(token["bytes"].size() == token["token"].get<std::string>().size());
  }
  CHECK(text == text_of(reply));
  std::size_t count = 0;
  for (const json& choice : streamed_choices(server, body_of({{"logprobs", true}})))
    if (!choice["logprobs"].is_null()) count += choice["logprobs"]["content"].size();
  CHECK(count == content.size());
  CHECK(ask(server, body_of({{"top_logprobs", 3}}), 400)["error"]["param"] == "top_logprobs");
  CHECK(ask(server, body_of({{"logprobs", true}, {"top_logprobs", 21}}), 400)["error"]["param"] == "top_logprobs");
}

TEST_CASE("a plain model refuses what it cannot do, with the field's name") {
  const RunningServer server({}, plain_served());
  const auto refused = [&](const json& more, const std::string& param) {
    INFO(more.dump());
    CHECK(ask(server, body_of(more), 400)["error"]["param"] == param);
  };
  for (const char* name : {"logit_bias", "audio", "modalities", "functions", "suffix", "mirostat", "best_of"})
    refused({{name, {{"1", 2}}}}, name);
  refused({{"temperature", "hot"}}, "temperature");
  refused({{"temperature", -1}}, "temperature");
  refused({{"top_p", 0}}, "top_p");
  refused({{"max_tokens", 1.5}}, "max_tokens");
  refused({{"n", 0}}, "n");
  refused({{"n", 1000}}, "n");
  refused({{"stop", {1}}}, "stop");
  refused({{"tools", {{{"type", "retrieval"}}}}}, "tools[0]");
  refused({{"tools", {tool("a b", json::object())}}}, "tools[0]");
  refused({{"tools", {tool("mcp", json::object())}}}, "tools[0]");
  refused({{"tools", {tool("a", {{"b", {{"type", "elephant"}}}})}}}, "tools[0]");
  refused({{"tool_choice", "required"}}, "tool_choice");
  refused({{"tools", {tool("a", json::object())}}, {"stop", "x"}}, "stop");
  refused({{"tools", {tool("a", json::object())}}, {"tool_choice", "none"}, {"logprobs", true}}, "logprobs");
  refused({{"chat_template_kwargs", {{"messages", json::array()}}}}, "chat_template_kwargs");
  refused({{"tools", {tool("a", json::object())}}, {"tool_choice", "b"}}, "tool_choice");
  refused({{"response_format", {{"type", "xml"}}}}, "response_format.type");
  refused({{"reasoning_effort", "some"}}, "reasoning_effort");
  const json image = {{{"type", "image_url"}, {"image_url", {{"url", "data:"}}}}};
  refused({{"messages", {{{"role", "user"}, {"content", image}}}}}, "messages[0].content");
  refused({{"messages", {{{"role", "tool"}, {"tool_call_id", "x"}, {"content", "19"}}}}}, "messages");
  refused({{"messages", {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}}}}},
          "messages[1].role");
  refused({{"messages", {{{"role", "user"}, {"content", std::string(200'000, 'a')}}}}}, "messages");
  CHECK(ask(server, body_of({{"user", "u"}, {"metadata", {{"a", "b"}}}, {"store", false}, {"logit_bias", nullptr}}))
            .contains("choices"));
}

}  // namespace plain_model_test
