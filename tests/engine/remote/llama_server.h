// SPDX-License-Identifier: Apache-2.0
// A llama-server as its README describes it, with bytes as its vocabulary and two special tokens. It refuses every
// request with a field that it does not know or that has an unexpected value, and keeps what its slots hold.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/http_server.h"

namespace baton::test {

using Json = nlohmann::json;

class LlamaServer {
 public:
  static constexpr int kBegin = 256, kEnd = 257;  // "<|begin|>", "<|end|>"

  struct Script {
    std::string text = "an answer";
    std::string stop_type = "eos";
    std::chrono::milliseconds per_token{0};
    int cut_after = -1;       // tokens, then the connection ends
    std::string fault;        // in place of the first event
    std::vector<int> hidden;  // indices of tokens whose ids are not told
  };
  struct Completion {
    std::vector<int> prompt;
    int slot = -1, ran = -1, predict = 0, cached = 0;
    bool warm_up() const { return predict == 0; }
    Json body;
  };

  explicit LlamaServer(int slots = 2, std::uint16_t port = 0, std::string model = "/models/toy.gguf")
      : model_(std::move(model)),
        slots_(static_cast<std::size_t>(slots)),
        server_([this](const HttpAsked& asked, HttpAnswer& answer) { respond(asked, answer); }, port) {}

  std::string address() const { return server_.address(); }
  std::uint16_t port() const { return server_.port(); }
  int connections() const { return server_.connections(); }

  std::vector<Completion> completions() const {
    const std::lock_guard lock(mutex_);
    return completions_;
  }
  std::vector<std::string> faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }

  // Set before requests come.
  std::function<Script(const std::string& prompt)> script;
  std::string key;                  // expected of each request
  std::atomic<int> busy = 0;        // so many completions are answered with 503 first
  std::atomic<int> refused = 0;     // answers of completions with 400
  std::atomic<int> hung_up = 0;     // connections that the client closed in the middle of an answer
  std::atomic<int> most_ahead = 0;  // warm-ups at once
  std::chrono::milliseconds warm_up_time{0};

  static std::string text_of(const std::vector<int>& ids) {
    std::string text;
    for (const int id : ids)
      text += id == kBegin ? "<|begin|>" : id == kEnd ? "<|end|>" : std::string(1, static_cast<char>(id));
    return text;
  }
  static std::vector<int> ids_of(const std::string& text, bool special) {
    std::vector<int> ids;
    for (std::size_t at = 0; at < text.size();) {
      if (special && text.compare(at, 9, "<|begin|>") == 0) {
        ids.push_back(kBegin), at += 9;
      } else if (special && text.compare(at, 7, "<|end|>") == 0) {
        ids.push_back(kEnd), at += 7;
      } else {
        ids.push_back(static_cast<unsigned char>(text[at++]));
      }
    }
    return ids;
  }

 private:
  struct Slot {
    std::vector<int> tokens;
    bool processing = false;
  };

  void respond(const HttpAsked& asked, HttpAnswer& answer) {
    if (!key.empty() && asked.headers.count("authorization") == 0) {
      answer.whole(401, R"({"error":{"code":401,"message":"Invalid API Key"}})");
    } else if (asked.path == "/props") {
      answer.whole(200, Json{{"default_generation_settings", {{"n_ctx", 4096}}},
                             {"total_slots", slots_.size()},
                             {"endpoint_slots", true},
                             {"model_path", model_},
                             {"chat_template",
                              "{% for m in messages %}<|begin|>{{ m['role'] }}:{{ m['content'] }}<|end|>{% endfor %}"
                              "{% if add_generation_prompt %}<|begin|>assistant:{% endif %}"},
                             {"bos_token", "<|begin|>"},
                             {"eos_token", "<|end|>"}}
                            .dump());
    } else if (asked.path == "/v1/models") {
      answer.whole(200, R"({"data":[{"id":"toy","meta":{"n_vocab":258}}]})");
    } else if (asked.path == "/tokenize") {
      const Json body = Json::parse(asked.body);
      expect(body, {"content", "add_special", "parse_special"});
      answer.whole(200, Json{{"tokens", ids_of(body.at("content"), body.at("parse_special"))}}.dump());
    } else if (asked.path == "/detokenize") {
      const Json body = Json::parse(asked.body);
      expect(body, {"tokens"});
      answer.whole(200,
                   Json{{"content", text_of(body.at("tokens"))}}.dump(-1, ' ', false, Json::error_handler_t::replace));
    } else if (asked.path == "/slots") {
      const std::lock_guard lock(mutex_);
      Json list = Json::array();
      for (std::size_t i = 0; i < slots_.size(); ++i)
        list.push_back({{"id", i}, {"is_processing", slots_[i].processing}});
      answer.whole(200, list.dump());
    } else if (asked.path == "/completion") {
      complete(asked, answer);
    } else {
      answer.whole(404, R"({"error":{"code":404,"message":"File Not Found"}})");
    }
  }

  void expect(const Json& body, const std::set<std::string>& fields) {
    std::set<std::string> found;
    for (const auto& [name, value] : body.items()) found.insert(name);
    if (found != fields) fault("fields are " + body.dump());
  }
  void fault(const std::string& what) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(what);
  }

  void check(const Json& body) {
    std::set<std::string> fields = {"prompt", "return_tokens", "response_fields", "n_predict",
                                    "stream", "cache_prompt",  "temperature"};
    if (body.at("n_predict") != 0) {
      for (const char* field :
           {"return_progress", "samplers", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n",
            "presence_penalty", "frequency_penalty", "dynatemp_range", "mirostat", "ignore_eos", "seed", "stop"})
        fields.insert(field);
      for (const char* field : {"grammar", "preserved_tokens"}) {
        if (body.contains(field)) fields.insert(field);
      }
    }
    if (body.contains("id_slot")) fields.insert("id_slot");
    expect(body, fields);
    if (body.at("stream") != (body.at("n_predict") != 0)) fault("stream");
    if (body.at("return_tokens") != true) fault("return_tokens");
    for (const Json& id : body.at("prompt")) {
      if (!id.is_number_integer() || id < 0 || id > kEnd) fault("the prompt holds " + id.dump());
    }
  }

  /// Waits for the slot that the request asks for, or for any.
  std::size_t take_slot(int asked) {
    std::unique_lock lock(mutex_);
    std::size_t taken = 0;
    freed_.wait(lock, [&] {
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].processing || (asked >= 0 && static_cast<std::size_t>(asked) != i)) continue;
        taken = i;
        return true;
      }
      return false;
    });
    slots_[taken].processing = true;
    return taken;
  }
  void free_slot(std::size_t slot) {
    const std::lock_guard lock(mutex_);
    slots_[slot].processing = false;
    freed_.notify_all();
  }

  void complete(const HttpAsked& asked, HttpAnswer& answer) {
    const Json body = Json::parse(asked.body);
    check(body);
    if (busy > 0) {
      --busy;
      answer.whole(503, R"({"error":{"code":503,"message":"Loading model","type":"unavailable_error"}})");
      return;
    }
    if (refused > 0) {
      --refused;
      answer.whole(400,
                   R"({"error":{"code":400,"message":"Failed to\nparse grammar","type":"invalid_request_error"}})");
      return;
    }
    Completion one;
    one.body = body;
    one.prompt = body.at("prompt").get<std::vector<int>>();
    one.predict = body.at("n_predict");
    one.slot = body.value("id_slot", -1);
    const std::size_t slot = take_slot(one.slot);
    one.ran = static_cast<int>(slot);
    {
      const std::lock_guard lock(mutex_);
      std::vector<int>& held = slots_[slot].tokens;
      const auto differ = std::mismatch(held.begin(), held.end(), one.prompt.begin(), one.prompt.end());
      one.cached = static_cast<int>(
          std::min<std::ptrdiff_t>(differ.first - held.begin(), static_cast<std::ptrdiff_t>(one.prompt.size()) - 1));
      if (!body.at("cache_prompt").get<bool>()) one.cached = 0;
      held = one.prompt;
      completions_.push_back(one);
    }
    if (one.warm_up())
      warm_up(one, answer);
    else
      generate(one, slot, answer);
    free_slot(slot);
  }

  static Json timings(const Completion& one) {
    return {{"cache_n", one.cached},
            {"prompt_n", static_cast<int>(one.prompt.size()) - one.cached},
            {"prompt_ms", 1.5},
            {"predicted_ms", 2.5}};
  }

  void warm_up(const Completion& one, HttpAnswer& answer) {
    const int now = ++ahead_;
    if (now > most_ahead) most_ahead = now;
    std::this_thread::sleep_for(warm_up_time);
    --ahead_;
    answer.whole(200, Json{{"content", "x"},
                           {"tokens", {120}},
                           {"tokens_predicted", 1},
                           {"stop", true},
                           {"tokens_evaluated", one.prompt.size()},
                           {"stop_type", "limit"},
                           {"id_slot", one.ran},
                           {"timings", timings(one)}}
                          .dump());
  }

  void generate(const Completion& one, std::size_t slot, HttpAnswer& answer) {
    const Script script_now = script ? script(text_of(one.prompt)) : Script{};
    const Json count = one.prompt.size();
    answer.begin_stream();
    if (!script_now.fault.empty()) {
      answer.event(script_now.fault);
      answer.end_stream();
      return;
    }
    answer.event(Json{{"content", ""},
                      {"tokens", {0}},
                      {"stop", false},
                      {"tokens_predicted", 0},
                      {"tokens_evaluated", count},
                      {"prompt_progress", {{"total", count}, {"cache", one.cached}, {"processed", count}}}}
                     .dump());
    const std::vector<int> ids = ids_of(script_now.text, false);
    int done = 0;
    std::string held;  // the beginning of a character
    for (const int id : ids) {
      if (done == one.predict) break;
      if (done == script_now.cut_after) return answer.cut();
      std::this_thread::sleep_for(script_now.per_token);
      ++done;
      held += static_cast<char>(id);
      const bool hidden =
          std::find(script_now.hidden.begin(), script_now.hidden.end(), done - 1) != script_now.hidden.end();
      if (hidden) continue;
      {
        const std::lock_guard lock(mutex_);
        slots_[slot].tokens.push_back(id);
      }
      if (!answer.event(Json{
              {"content", held},
              {"tokens", {id}},
              {"stop", false},
              {"tokens_predicted", done},
              {"tokens_evaluated",
               count}}.dump())) {
        ++hung_up;
        return answer.cut();
      }
      held.clear();
    }
    if (script_now.stop_type == "eos")
      answer.event(Json{
          {"content", ""},
          {"tokens", {kEnd}},
          {"stop", false},
          {"tokens_predicted", ++done},
          {"tokens_evaluated",
           count}}.dump());
    answer.event(Json{{"content", ""},
                      {"tokens", Json::array()},
                      {"stop", true},
                      {"tokens_predicted", done},
                      {"tokens_evaluated", count},
                      {"stop_type", script_now.stop_type},
                      {"id_slot", one.ran},
                      {"timings", timings(one)}}
                     .dump());
    answer.end_stream();
  }

  const std::string model_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Slot> slots_;
  std::vector<Completion> completions_;
  std::vector<std::string> faults_;
  std::atomic<int> ahead_ = 0;
  HttpServer server_;  // last: it uses everything above
};

}  // namespace baton::test
