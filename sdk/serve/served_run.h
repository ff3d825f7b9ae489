// SPDX-License-Identifier: Apache-2.0
// One request's run of its workflow, and what its client is sent: JSON, whole or in the chunks of a stream.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <baton/engine.h>
#include <baton/event.h>

#include "sdk/serve/chat_request.h"
#include "sdk/serve/metrics.h"

namespace baton::serve {

/// The text that answers: the only output, or "name: text" for each of several.
std::string answer_of(const RunRecord& record);

/// The calls of all runs that wait for an approval; of those that did, what became of them, for a while. All members
/// are safe from any thread.
class Approvals {
 public:
  /// `patience`: for the answer to a question; 0: nobody is asked.
  explicit Approvals(std::chrono::milliseconds patience) : patience_(patience) {}

  bool asks() const { return patience_.count() > 0; }
  std::chrono::milliseconds patience() const { return patience_; }

  /// A question of a run.
  struct Question {
    std::string run;    // id of the completion
    std::string model;  // name of the workflow
    Asked asked;
  };
  /// Who comes with a question: the run's event, which tells it, and the run's call of on_ask, which waits. They are on
  /// different threads, and meet in one question if it is about the same call with the same arguments.
  enum class Side : std::uint8_t { telling, waiting };
  /// Returns the id of a question, which is open from the first call with it on. A question that is told closes those
  /// of the same turn's earlier attempts for which nobody waits: an answer never counts for another call.
  std::string open(const Question& question, Side side);
  /// Waits for the answer, as RunOptions::on_ask gives it. Nothing, and the question is closed: the time has passed, a
  /// stop was requested, or close() was called. An answer is given once.
  std::optional<std::string> wait(const std::string& id, const std::stop_token& stop);
  /// Closes the open questions of a run that is over.
  void close(const std::string& run);
  /// Closes all, and what is opened from now on: nobody can answer any more.
  void stop();
  bool is_stopped() const;

  /// The open questions, the oldest first.
  std::string list_json() const;
  /// Takes the body of an answer. Returns the reply. Throws ApiError: 400, 404, 409 for a question that has an answer,
  /// 410 for one that is closed.
  std::string answer(const std::string& id, std::string_view body);

 private:
  enum class State : std::uint8_t { open, answered, closed };
  struct Entry {
    Question question;
    State state = State::open;
    bool told = false, waited = false;  // the sides that have come
    std::string answer;
    std::uint64_t order = 0;
    long long created = 0;  // seconds since 1970
  };

  void end(const std::string& id, Entry& entry, State state);
  static void drop_texts(Entry& entry);

  const std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Entry> entries_;  // by id
  std::deque<std::string> over_;          // ids that are not open, the oldest first
  std::uint64_t opened_ = 0;
  bool stopped_ = false;
};

/// Of one request. Its members return JSON on one line.
class Completion {
 public:
  /// `request` must outlive it. `created`: seconds since 1970.
  Completion(const ChatRequest& request, long long created);

  /// `records`: one for each of the answers, of which most requests want one. `tokens`: those of each, if their log
  /// probabilities are wanted.
  std::string whole(const std::vector<RunRecord>& records, const std::vector<std::vector<Token>>& tokens) const;

  /// Chunks of answer `index`: the first one, text, calls of tools, the end with its reason; then the usage of all.
  std::string first(int index) const;
  std::string text(int index, std::string_view text, const std::vector<Token>& tokens = {}) const;
  /// The same for the model's thinking, which a plain completion does not have: `request.chat` only.
  std::string thinking(int index, std::string_view text) const;
  /// Nothing: the answer has no calls.
  std::optional<std::string> calls(int index, const RunRecord& record) const;
  std::string last(int index, const RunRecord& record) const;
  std::string usage(const std::vector<RunRecord>& records) const;
  /// A chunk without choices, whose member `baton` is the event, without the path of the model.
  std::string event(const Event& event, double t_ms) const;
  /// A chunk without choices, whose member `baton` is a question that Approvals::answer can answer.
  std::string approval(const std::string& question, const Asked& asked) const;

  const std::string& id() const { return id_; }

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

// Other interfaces than OpenAI's chat completions: their requests become such, and what answers these becomes theirs.

/// An event of a stream: its name, empty for chat completions, and its data.
struct StreamEvent {
  std::string name;
  std::string json;
};

/// Translates what answers one request.
class Dialect {
 public:
  virtual ~Dialect() = default;
  /// A whole reply: a chat completion, or an error.
  virtual std::string whole(int status, const std::string& chat) = 0;
  /// A chunk of a stream, or the error that ends it.
  virtual std::vector<StreamEvent> chunk(const std::string& chat) = 0;
  /// What follows the last chunk of an answer.
  virtual std::vector<StreamEvent> end() = 0;
};

struct TranslatedRequest {
  std::string chat;  // the body of a chat completion
  std::shared_ptr<Dialect> dialect;
};
/// Of /v1/messages, for refusals before the body is read.
std::shared_ptr<Dialect> messages_dialect();
/// The bodies of POST /v1/messages (Anthropic's Messages) and POST /v1/responses (OpenAI's Responses). Throw ApiError.
TranslatedRequest read_messages_request(std::string_view body);
TranslatedRequest read_response_request(std::string_view body);

struct RunSettings {
  std::chrono::milliseconds timeout{0};  // 0: none
  std::chrono::steady_clock::time_point arrived;
  std::stop_token stop;                                 // stops this request
  std::function<void(const std::string& line)> on_log;  // what the client is not told
  std::function<EventCallback()> follow_run{};          // as in ServeOptions
};

/// Runs the workflow to its end on the calling thread. Whatever fails is told to the client in the form of an error.
void answer(const Engine& engine, const ChatRequest& request, const RunSettings& settings, Metrics& metrics,
            Approvals& approvals, const ReplySink& sink);

}  // namespace baton::serve
