// SPDX-License-Identifier: Apache-2.0
// HTTP requests over libcurl, with redirects followed here: each hop is checked, and a token goes to its own host only.
// Attempts after failures of the network: pauses that double, or what the server asks for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

namespace baton {

/// A request failed. Its message names the URL without secrets.
class HttpError : public std::runtime_error {
 public:
  enum class Kind {
    transient,  // no connection, cut off, 429, 5xx: another attempt may succeed
    refused,    // an answer that another attempt will not change
    stopped,
  };
  HttpError(Kind what_failed, const std::string& text) : std::runtime_error(text), kind(what_failed) {}
  Kind kind;
  long status = 0;          // status of the answer; 0: there was none
  double wait_seconds = 0;  // what Retry-After asked for
  std::string code;         // X-Error-Code of a hub, "GatedRepo"
};

struct HttpReply {
  long status = 0;
  std::string url;                             // that answered, after redirects
  std::map<std::string, std::string> headers;  // names in lower case; of that answer
  std::map<std::string, std::string> linked;   // x-linked-* and x-repo-commit of the first host

  /// Empty: there is no such header.
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  bool head = false;
  bool stay = false;      // answer with a redirect to another host in place of following it
  bool is_file = false;   // it may take any time while bytes keep coming; else HttpSettings::answer_seconds
  std::int64_t from = 0;  // first byte asked for
  std::string if_range;   // validator that a range depends on, or empty
  std::string token;      // sent to the host of `url`, and to no other
  std::vector<std::string> headers{};  // "Name: value", likewise
  std::optional<std::string> post{};   // the body of a POST, which follows no redirects
};

struct HttpSettings {
  std::string user_agent;
  long stall_seconds = 30;    // at less than 1 KiB/s
  long answer_seconds = 300;  // for an answer that is no file, with its redirects
  std::stop_token stop;
};

class HttpClient {
 public:
  explicit HttpClient(HttpSettings settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Calls `begin` once the headers of a 2xx answer are there, then `write` with its body in pieces; what they throw
  /// ends the request and comes out of it. Throws HttpError, for every status that is not 2xx as well, except for a
  /// redirect that `stay` returns.
  HttpReply send(const HttpRequest& request, const std::function<void(const HttpReply& reply)>& begin,
                 const std::function<void(std::span<const std::byte> bytes)>& write);

  /// The body of a 2xx answer as a text. Throws HttpError, also when it has more than `max_bytes`.
  std::string text(const HttpRequest& request, std::size_t max_bytes, HttpReply* reply = nullptr);

 private:
  struct Hop;
  std::unique_ptr<HttpError> perform(Hop& hop);

  HttpSettings settings_;
  void* handle_;  // CURL
};

class Retries {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// `deadline`: no attempt begins after it.
  Retries(int max_failures, std::stop_token stop, std::function<void(const std::string& text)> on_note,
          Deadline deadline = Deadline::max())
      : max_failures_(max_failures), deadline_(deadline), stop_(std::move(stop)), on_note_(std::move(on_note)) {}

  /// Runs `attempt` until it returns. After a transient HttpError it waits and runs it again; other errors, the one
  /// after `max_failures` failures in a row, and one whose pause would end after the deadline, come out. Stopping while
  /// it waits throws HttpError.
  void run(const std::function<void()>& attempt);

  /// An attempt came further: failures are counted from zero again.
  void progressed() { failures_ = 0; }

 private:
  void wait(std::chrono::duration<double> seconds) const;

  int max_failures_;
  Deadline deadline_;
  int failures_ = 0;
  std::stop_token stop_;
  std::function<void(const std::string& text)> on_note_;
};

}  // namespace baton
