// SPDX-License-Identifier: Apache-2.0
// One request's run of its workflow, and what its client is sent: JSON, whole or in the chunks of a stream.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>
#include <string_view>

#include <baton/engine.h>
#include <baton/event.h>

#include "sdk/serve/chat_request.h"
#include "sdk/serve/metrics.h"

namespace baton::serve {

/// The text that answers: the only output, or "name: text" for each of several.
std::string answer_of(const RunRecord& record);

/// Of one request. Its members return JSON on one line.
class Completion {
 public:
  /// `request` must outlive it. `created`: seconds since 1970.
  Completion(const ChatRequest& request, long long created);

  std::string whole(const RunRecord& record) const;

  /// Chunks: the first one, text, the end with its reason, then the usage.
  std::string first() const;
  std::string text(std::string_view text) const;
  /// The same for the model's thinking, which a plain completion does not have: `request.chat` only.
  std::string thinking(std::string_view text) const;
  std::string last(const RunRecord& record) const;
  std::string usage(const RunRecord& record) const;
  /// A chunk without choices, whose member `baton` is the event, without the path of the model.
  std::string event(const Event& event, double t_ms) const;

 private:
  const ChatRequest& request_;
  std::string id_;
  long long created_;
};

/// Gets what is to be sent, in order, on the thread that runs the request. Either `reply` alone, or `begin`, any number
/// of `data` and `end`.
struct ReplySink {
  std::function<void(int status, std::string json)> reply;
  std::function<void()> begin;                 // begins a stream
  std::function<void(std::string json)> data;  // an event of the stream
  std::function<void(int status)> end;         // ends the stream; `status`: that of a whole reply
};

struct RunSettings {
  std::chrono::milliseconds timeout{0};  // 0: none
  std::chrono::steady_clock::time_point arrived;
  std::stop_token stop;                                 // stops this request
  std::function<void(const std::string& line)> on_log;  // what the client is not told
  std::function<EventCallback()> follow_run{};          // as in ServeOptions
};

/// Runs the workflow to its end on the calling thread. Whatever fails is told to the client in the form of an error.
void answer(const Engine& engine, const ChatRequest& request, const RunSettings& settings, Metrics& metrics,
            const ReplySink& sink);

}  // namespace baton::serve
