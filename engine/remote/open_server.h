// SPDX-License-Identifier: Apache-2.0
// ModelServer: the address of a server of models, with its key, and the requests to it.
#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "engine/base/json/json_reader.h"
#include "engine/engine.h"
#include "engine/remote/http_loop.h"

namespace baton {

/// Where a server is, and what it wants to know.
struct ServerAddress {
  std::string endpoint;  // "http://host:8000"; what stands behind the host is kept, but for "/v1"
  std::string key;       // a bearer token, never shown; empty: none
};

/// Any thread.
class ModelServer {
 public:
  /// Throws BackendError for an endpoint that is no address of HTTP, and if this build has no HTTP.
  explicit ModelServer(ServerAddress address);

  /// The endpoint for messages: without user, password, query and fragment.
  const std::string& shown() const { return shown_; }
  HttpLoop& loop() { return *loop_; }

  /// A call that can be started on the loop; an empty body is a GET.
  HttpCall call(const std::string& path, std::string body) const;

  /// Waits for an answer of JSON, with further attempts if one may succeed. Must not be called on the loop's thread.
  /// Throws BackendError, and Interrupted soon after a stop was requested.
  JsonDocument fetch(const std::string& path, const std::string& body, const std::stop_token& stop = {});
  /// The same, or nothing: there is no such path, or it answers with something else.
  std::optional<JsonDocument> find(const std::string& path, const std::stop_token& stop, const std::string& body = {});

  /// "server http://host:8000: it answered with status 503: Loading model". A status that says that there is nothing at
  /// the path comes with the path.
  std::string problem(const HttpEnd& end) const;
  std::string problem(const std::string& words) const { return "server " + shown_ + ": " + words; }

 private:
  struct Waiting;
  HttpEnd wait(const std::string& path, const std::string& body, std::string& answer, const std::stop_token& stop);

  ServerAddress address_;
  std::string shown_;
  std::unique_ptr<HttpLoop> loop_;
};

/// Pauses between attempts: they double from a quarter of a second, or are as long as the server asks for.
class AttemptPauses {
 public:
  static constexpr double kAtOpening = 3.75;  // seconds: an address may be wrong
  static constexpr int kMaxAttempts = 5;      // whose pause the server asks for
  /// `patience`: of all other pauses together, in seconds.
  explicit AttemptPauses(double patience = kAtOpening) : left_(patience) {}
  /// The pause after a failed attempt, in seconds; nothing: there is no further attempt.
  std::optional<double> next(const HttpEnd& end);

 private:
  double left_;          // seconds
  double pause_ = 0.25;  // the next one
  int asked_ = 0;        // pauses that the server asked for
};

// Opening a model that a server of another project runs: what kind of server it is, its vocabulary and its template.

/// A model of a server.
struct ServerModel {
  ServerAddress address;
  std::string model;         // its name there; empty: the only one, or whichever the server takes
  std::string api = "auto";  // auto, llama, vllm, sglang, openai
  /// The tokenizer and the chat template of the model; null: the server is asked, or takes messages.
  std::shared_ptr<const ModelText> text;
  std::int32_t context = 0;  // maximum tokens of a prompt and its answer; 0: what the server says
  double slowdown = 0.0;     // as LocalEngineOptions::slowdown; 0: that of the CPU
  double patience = 60.0;    // seconds: how long a request is sent again to a server that is not there or overloaded
};

/// Asks the server what it is. Throws BackendError, ModelError for a template or tokenizer that cannot be used, and
/// Interrupted soon after a stop was requested.
std::shared_ptr<InferenceEngine> open_server(const ServerModel& model, const std::stop_token& stop = {});

}  // namespace baton
