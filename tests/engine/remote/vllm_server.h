// SPDX-License-Identifier: Apache-2.0
// A vLLM server as the documentation of version 0.33.0 describes it, or of 0.10.2 where `version` says so. It refuses
// every field that it does not know or that has an unexpected value, where vLLM ignores some of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/engine/remote/scripted_server.h"

namespace baton::test {

class VllmServer : public ScriptedServer {
 public:
  explicit VllmServer(std::uint16_t port = 0)
      : server_([this](const HttpAsked& asked, HttpAnswer& answer) { respond(asked, answer); }, port) {}

  std::string address() const { return server_.address(); }
  std::uint16_t port() const { return server_.port(); }

  // Set before requests come.
  std::string version = "0.33.0";
  bool tells_version = true;
  bool has_priorities = true;                                           // --scheduling-policy priority
  int context = 4096;                                                   // --max-model-len
  std::function<std::vector<int>(const std::string& text)> tokenize{};  // null: there is no /tokenize

  static constexpr int kBlock = 16;

 private:
  void respond(const HttpAsked& asked, HttpAnswer& answer) {
    if (asked.path == "/v1/models") {
      answer.whole(200, Json{{"object", "list"},
                             {"data",
                              {{{"id", model},
                                {"object", "model"},
                                {"created", 1},
                                {"owned_by", "vllm"},
                                {"root", "/models/" + model},
                                {"parent", nullptr},
                                {"max_model_len", context},
                                {"permission", Json::array()}}}}}
                            .dump());
    } else if (asked.path == "/version" && tells_version) {
      answer.whole(200, Json{{"version", version}}.dump());
    } else if (asked.path == "/tokenize" && tokenize) {
      const Json body = Json::parse(asked.body);
      answer.whole(200, Json{{"tokens", tokenize(body.at("prompt"))}, {"max_model_len", context}}.dump());
    } else if (asked.path == "/v1/completions") {
      complete(Json::parse(asked.body), answer);
    } else if (asked.path == "/v1/chat/completions") {
      answer.begin_stream();
      answer.event(R"({"choices":[{"index":0,"delta":{"content":"chat"},"finish_reason":"stop"}]})");
      answer.event("[DONE]");
      answer.end_stream();
    } else {
      answer.whole(404, R"({"detail":"Not Found"})");
    }
  }

  static void error(HttpAnswer& answer, int status, const std::string& message) {
    answer.whole(status, Json{{"error",
                               {{"message", message},
                                {"type", status == 400 ? "BadRequestError" : "ServiceUnavailableError"},
                                {"param", nullptr},
                                {"code", status}}}}
                             .dump());
  }

  bool is_old() const { return version.starts_with("0.10."); }

  /// Why it does not take the request; empty: it does.
  std::string problem(const Json& body) {
    Fields fields = {{"model", [this](const Json& value) { return value == model; }},
                     {"prompt", is_prompt},
                     {"max_tokens", [](const Json& value) { return is_count(value) && value > 0; }},
                     {"stream", is_flag},
                     {"stream_options",
                      [](const Json& value) {
                        return value == Json{{"include_usage", true}};
                      }},
                     {"return_token_ids", is_flag},
                     {"temperature", within(0, 2)},
                     {"top_k", [](const Json& value) { return value == -1 || (is_count(value) && value > 0); }},
                     {"top_p", [](const Json& value) { return within(0, 1)(value) && value > 0; }},
                     {"min_p", within(0, 1)},
                     {"repetition_penalty", [](const Json& value) { return value.is_number() && value > 0; }},
                     {"presence_penalty", within(-2, 2)},
                     {"frequency_penalty", within(-2, 2)},
                     {"skip_special_tokens", is_flag},
                     {"ignore_eos", is_flag},
                     {"seed", [](const Json& value) { return is_count(value) && value <= INT64_MAX; }},
                     {"stop", is_stops},
                     {"include_stop_str_in_output", is_flag},
                     {"priority", [](const Json& value) { return value.is_number_integer(); }}};
    if (is_old()) {
      fields["guided_grammar"] = is_grammar;
    } else {
      fields["structured_outputs"] = [](const Json& value) {
        return value.is_object() && value.size() == 1 && value.contains("grammar") && is_grammar(value["grammar"]);
      };
      fields["cache_salt"] = [](const Json& value) { return value.is_string() && value != ""; };
    }
    if (const std::string field = wrong(body, fields); !field.empty()) return field + " is wrong";
    if (body.contains("stream_options") && !body.value("stream", false))
      return "Stream options can only be defined when `stream=True`.";
    if (body.at("prompt").size() + body.at("max_tokens").get<std::size_t>() > static_cast<std::size_t>(context))
      return "maximum context length is exceeded";
    if (body.value("priority", 0) != 0 && !has_priorities) return "Priority scheduling is not enabled.";
    return {};
  }

  void complete(const Json& body, HttpAnswer& answer) {
    if (busy > 0) return --busy, error(answer, 503, "The server is starting"), void();
    if (refused > 0) return --refused, error(answer, 400, "Grammar error:\nunknown rule"), void();
    if (const std::string why = problem(body); !why.empty()) return error(answer, 400, why);
    const bool streams = body.value("stream", false);
    const Asked one = note(body, body.at("prompt"), !streams, body.value("cache_salt", ""), kBlock);
    if (!streams) {
      count_ahead();
      answer.whole(200, Json{{"id", "cmpl-1"},
                             {"object", "text_completion"},
                             {"model", model},
                             {"choices", {{{"index", 0}, {"text", "x"}, {"finish_reason", "length"}}}},
                             {"usage", usage(one, 1)}}
                            .dump());
      return;
    }
    stream(one, body, answer);
  }

  Json usage(const Asked& one, int generated) const {
    Json usage = {{"prompt_tokens", one.prompt.size()},
                  {"completion_tokens", generated},
                  {"total_tokens", one.prompt.size() + static_cast<std::size_t>(generated)}};
    if (tells_cached) usage["prompt_tokens_details"] = {{"cached_tokens", one.cached}};
    return usage;
  }

  /// Without include_stop_str_in_output it would hold text back, which is beyond what is asked of it here.
  void stream(const Asked& one, const Json& body, HttpAnswer& answer) {
    const auto stops = body.value("stop", std::vector<std::string>());
    if (!stops.empty() && !body.value("include_stop_str_in_output", false))
      return error(answer, 400, "include_stop_str_in_output is expected");
    answer.begin_stream();
    bool first = true, ended = false;
    int generated = 0;
    decode(one, body.at("max_tokens"), stops, answer,
           [&](std::vector<int> ids, const std::string& text, const std::string& end) {
             generated += static_cast<int>(ids.size());
             ended = !end.empty();
             Json choice = {{"index", 0},
                            {"text", text},
                            {"logprobs", nullptr},
                            {"finish_reason", end.empty() ? Json() : Json(end == "length" ? "length" : "stop")},
                            {"stop_reason", end.empty() || end == "length" || end == "end" ? Json() : Json(end)}};
             if (!is_old() || body.value("return_token_ids", false)) choice["token_ids"] = ids;
             if (std::exchange(first, false)) choice["prompt_token_ids"] = one.prompt;
             return answer.event(Json{{"id", "cmpl-1"}, {"choices", {choice}}}.dump());
           });
    if (!ended) return;
    answer.event(Json{{"id", "cmpl-1"}, {"choices", Json::array()}, {"usage", usage(one, generated)}}.dump());
    answer.event("[DONE]");
    answer.end_stream();
  }

  HttpServer server_;  // last: it uses everything above
};

}  // namespace baton::test
