// SPDX-License-Identifier: Apache-2.0
// What the strict servers of vLLM and SGLang share: what they are asked, what they are to say, and a prefix cache.
// Their vocabulary is the bytes and the markers of message_text(), of which kEnd ends answers.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/utf8.h"
#include "engine/text/constrain/grammar.h"
#include "tests/support/http_server.h"

namespace baton::test {

class ScriptedServer {
 public:
  using Json = nlohmann::json;
  static constexpr int kEnd = 258, kVocabulary = 260;

  struct Script {
    std::string text = "an answer";
    std::chrono::milliseconds per_token{0};
    int together = 1;    // tokens in an event
    int cut_after = -1;  // tokens, then the connection ends
    std::string fault;   // in place of the first event
  };
  struct Asked {
    std::vector<int> prompt;
    int cached = 0;
    bool warm_up = false;
    Json body;
  };

  std::vector<Asked> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::vector<std::string> faults() const {
    const std::lock_guard lock(mutex_);
    return faults_;
  }

  // Set before requests come.
  std::function<Script(const std::string& prompt)> script;
  std::string model = "toy";
  bool tells_cached = true;
  std::atomic<int> busy = 0;        // so many requests are answered with 503 first
  std::atomic<int> refused = 0;     // with 400
  std::atomic<int> hung_up = 0;     // connections that the client closed in the middle of an answer
  std::atomic<int> most_ahead = 0;  // warm-ups at once

 protected:
  /// Fields of a request by name, each with what its value must be.
  using Fields = std::map<std::string, std::function<bool(const Json&)>>;
  static bool is_flag(const Json& value) { return value.is_boolean(); }
  static bool is_count(const Json& value) { return value.is_number_integer() && value >= 0; }
  static bool is_list(const Json& value) { return value.is_array() && !value.empty(); }
  static std::function<bool(const Json&)> within(double low, double high) {
    return [=](const Json& value) { return value.is_number() && value >= low && value <= high; };
  }
  static bool is_stops(const Json& value) {
    return is_list(value) &&
           std::all_of(value.begin(), value.end(), [](const Json& stop) { return stop.is_string() && stop != ""; });
  }
  static bool is_grammar(const Json& value) {
    try {
      gbnf_grammar(value.get<std::string>());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  static bool is_prompt(const Json& value) {
    return is_list(value) &&
           std::all_of(value.begin(), value.end(), [](const Json& id) { return is_count(id) && id < kVocabulary; });
  }

  /// The first field that is unknown, or has no fitting value; empty: there is none.
  std::string wrong(const Json& body, const Fields& fields) {
    for (const auto& [name, value] : body.items()) {
      const auto field = fields.find(name);
      if (field != fields.end() && field->second(value)) continue;
      const std::lock_guard lock(mutex_);
      faults_.push_back(name + ": " + value.dump());
      return name;
    }
    return {};
  }

  /// Notes the request, and keeps its prompt. `space`: prompts of another one share nothing. `page`: tokens that are
  /// kept together; the last token is always computed.
  Asked note(const Json& body, std::vector<int> prompt, bool warm_up, const std::string& space, int page) {
    const std::lock_guard lock(mutex_);
    Asked one{std::move(prompt), 0, warm_up, body};
    for (const auto& [where, kept] : kept_) {
      if (where != space) continue;
      const auto differ = std::mismatch(kept.begin(), kept.end(), one.prompt.begin(), one.prompt.end());
      one.cached = std::max(one.cached, static_cast<int>(differ.first - kept.begin()));
    }
    one.cached = std::min(one.cached, static_cast<int>(one.prompt.size()) - 1) / page * page;
    kept_.emplace_back(space, one.prompt);
    asked_.push_back(one);
    return one;
  }
  void count_ahead() {
    const int now = ++ahead_;
    if (now > most_ahead) most_ahead = now;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --ahead_;
  }

  /// Decodes the script's text. `stops`: texts that end it. `event` gets the new ids and their text, and how the answer
  /// ended: "", "length", "end" or the stop text; it returns false when the client has gone. The stream stays open.
  void decode(const Asked& one, int max_tokens, const std::vector<std::string>& stops, HttpAnswer& answer,
              const std::function<bool(std::vector<int> ids, const std::string& text, const std::string& end)>& event) {
    const Script now = script ? script(text_of(one.prompt)) : Script{};
    if (!now.fault.empty()) {
      answer.event(now.fault);
      answer.end_stream();
      return;
    }
    std::string all, held;  // text so far; the beginning of a character
    std::vector<int> ids;
    std::string text;
    for (int done = 0;; ++done) {
      if (done == now.cut_after) return answer.cut();
      std::this_thread::sleep_for(now.per_token);
      const bool over = static_cast<std::size_t>(done) == now.text.size();
      ids.push_back(over ? kEnd : static_cast<unsigned char>(now.text[static_cast<std::size_t>(done)]));
      std::string end = over ? "end" : done + 1 == max_tokens ? "length" : "";
      if (!over) {
        held += static_cast<char>(ids.back());
        if (utf8::scan(held, 0).kind != utf8::Scan::unfinished) {
          all += held;
          text += std::exchange(held, {});
        }
        for (const std::string& stop : stops)
          if (all.ends_with(stop)) end = stop;
      }
      if (end.empty() && static_cast<int>(ids.size()) < now.together) continue;
      if (!event(std::exchange(ids, {}), std::exchange(text, {}), end)) {
        ++hung_up;
        return answer.cut();
      }
      if (!end.empty()) return;
    }
  }

  static std::string text_of(const std::vector<int>& ids) {
    std::string text;
    for (const int id : ids) text += id < 256 ? static_cast<char>(id) : '#';
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Asked> asked_;
  std::vector<std::string> faults_;
  std::vector<std::pair<std::string, std::vector<int>>> kept_;
  std::atomic<int> ahead_ = 0;
};

}  // namespace baton::test
