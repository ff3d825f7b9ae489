// SPDX-License-Identifier: Apache-2.0
// An SGLang server as the documentation of version 0.5.23 describes it. It refuses every field that it does not know or
// that has an unexpected value; SGLang does so for those of sampling_params.
#pragma once

#include <string>
#include <vector>

#include "tests/engine/remote/scripted_server.h"

namespace baton::test {

class SglangServer : public ScriptedServer {
 public:
  explicit SglangServer(std::uint16_t port = 0)
      : server_([this](const HttpAsked& asked, HttpAnswer& answer) { respond(asked, answer); }, port) {}

  std::string address() const { return server_.address(); }
  std::uint16_t port() const { return server_.port(); }

  // Set before requests come.
  bool deltas = false;              // --incremental-streaming-output
  bool caches = true;               // not --disable-radix-cache
  bool is_older = false;            // the path for what it tells of itself
  int context = 4096;               // --context-length
  std::atomic<int> queue_full = 0;  // requests that it takes and then gives up
  std::string told;                 // of itself, in place of that

 private:
  void respond(const HttpAsked& asked, HttpAnswer& answer) {
    if (asked.path == "/v1/models") {
      answer.whole(200, Json{{"object", "list"},
                             {"data",
                              {{{"id", model},
                                {"object", "model"},
                                {"created", 1},
                                {"owned_by", "sglang"},
                                {"root", model},
                                {"parent", nullptr},
                                {"max_model_len", context}}}}}
                            .dump());
    } else if (asked.path == (is_older ? "/get_server_info" : "/server_info")) {
      Json info = {{"model_path", "/models/" + model}, {"version", "0.5.23"}, {"disable_radix_cache", !caches}};
      info[is_older ? "stream_output" : "incremental_streaming_output"] = deltas;
      answer.whole(200, told.empty() ? info.dump() : told);
    } else if (asked.path == "/generate") {
      generate(Json::parse(asked.body), answer);
    } else if (asked.path == "/v1/chat/completions") {
      answer.begin_stream();
      answer.event(R"({"choices":[{"index":0,"delta":{"content":"chat"},"finish_reason":"stop"}]})");
      answer.event("[DONE]");
      answer.end_stream();
    } else {
      answer.whole(404, R"({"detail":"Not Found"})");
    }
  }

  std::string problem(const Json& body) {
    const Fields fields = {{"input_ids", is_prompt},
                           {"sampling_params", [](const Json& value) { return value.is_object(); }},
                           {"stream", is_flag},
                           {"extra_key", [](const Json& value) { return value.is_string() && value != ""; }}};
    if (const std::string field = wrong(body, fields); !field.empty()) return "unknown field `" + field + "`";
    const Fields params = {{"max_new_tokens", is_count},
                           {"temperature", [](const Json& value) { return value.is_number() && value >= 0; }},
                           {"top_k", [](const Json& value) { return value == -1 || (is_count(value) && value > 0); }},
                           {"top_p", [](const Json& value) { return within(0, 1)(value) && value > 0; }},
                           {"min_p", within(0, 1)},
                           {"repetition_penalty", [](const Json& value) { return within(0, 2)(value) && value > 0; }},
                           {"presence_penalty", within(-2, 2)},
                           {"frequency_penalty", within(-2, 2)},
                           {"skip_special_tokens", is_flag},
                           {"ignore_eos", is_flag},
                           {"sampling_seed", [](const Json& value) { return is_count(value) && value <= INT64_MAX; }},
                           {"stop", is_stops},
                           {"no_stop_trim", is_flag},
                           {"ebnf", is_grammar}};
    if (const std::string field = wrong(body.at("sampling_params"), params); !field.empty())
      return "unknown field `" + field + "`";
    if (body.at("input_ids").size() >= static_cast<std::size_t>(context)) return "The input is longer than the context";
    return {};
  }

  static void error(HttpAnswer& answer, int status, const std::string& message) {
    answer.whole(status, Json{{"error", {{"message", message}}}}.dump());
  }

  void generate(const Json& body, HttpAnswer& answer) {
    if (busy > 0) return --busy, error(answer, 503, "The server is starting"), void();
    if (refused > 0) return --refused, error(answer, 400, "Grammar error:\nunknown rule"), void();
    if (const std::string why = problem(body); !why.empty()) return error(answer, 400, why);
    const Json& params = body.at("sampling_params");
    const bool streams = body.value("stream", false);
    const Asked one = note(body, body.at("input_ids"), !streams, body.value("extra_key", ""), 1);
    if (!streams) {
      count_ahead();
      answer.whole(200, Json{{"text", ""}, {"output_ids", {0}}, {"meta_info", meta(one, 1, "length", Json())}}.dump());
      return;
    }
    answer.begin_stream();
    if (queue_full > 0) {
      --queue_full;
      Json gone = meta(one, 0, "abort", Json());
      gone["finish_reason"]["message"] = "The request queue is full.";
      gone["finish_reason"]["status_code"] = 503;
      answer.event(Json{{"text", ""}, {"output_ids", Json::array()}, {"meta_info", gone}}.dump());
      answer.event("[DONE]");
      answer.end_stream();
      return;
    }
    std::vector<int> all;
    std::string text;
    bool ended = false;
    // It holds no text back: a stop text is streamed as far as it has come, and cut off at the end unless told
    // otherwise.
    decode(one, params.at("max_new_tokens"), params.value("stop", std::vector<std::string>()), answer,
           [&](std::vector<int> ids, const std::string& piece, const std::string& end) {
             all.insert(all.end(), ids.begin(), ids.end());
             text += piece;
             ended = !end.empty();
             const Json matched = end == "end" ? Json(kEnd) : end == "length" ? Json() : Json(end);
             const std::string type = end.empty() ? "" : end == "length" ? "length" : "stop";
             return answer.event(Json{{"text", deltas ? piece : text},
                                      {"output_ids", deltas ? ids : all},
                                      {"meta_info", meta(one, static_cast<int>(all.size()), type, matched)}}
                                     .dump());
           });
    if (!ended) return;
    answer.event("[DONE]");
    answer.end_stream();
  }

  Json meta(const Asked& one, int generated, const std::string& type, const Json& matched) const {
    Json meta = {{"id", "1"}, {"prompt_tokens", one.prompt.size()}, {"completion_tokens", generated}};
    if (tells_cached) meta["cached_tokens"] = one.cached;
    meta["finish_reason"] = type.empty() ? Json() : Json{{"type", type}};
    if (!matched.is_null()) meta["finish_reason"]["matched"] = matched;
    return meta;
  }

  HttpServer server_;  // last: it uses everything above
};

}  // namespace baton::test
