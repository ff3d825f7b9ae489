// SPDX-License-Identifier: Apache-2.0
// HttpClient: HTTP requests over libcurl. It follows redirects itself: it checks each one, and sends a token only to
// the host of the request. Retries: repeats a request after network failures, with pauses that double or that the
// server asks for.
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
    refused,    // another attempt would fail in the same way
    stopped,
  };
  HttpError(Kind what_failed, const std::string& text) : std::runtime_error(text), kind(what_failed) {}
  Kind kind;
  long status = 0;          // HTTP status of the answer; 0: there was no answer
  double wait_seconds = 0;  // the pause that Retry-After asked for; 0: none
  std::string code;         // the X-Error-Code header of a model hub, such as "GatedRepo"
};

struct HttpReply {
  long status = 0;
  std::string url;                             // the URL that answered, after redirects
  std::map<std::string, std::string> headers;  // headers of the last answer; names in lower case
  std::map<std::string, std::string> linked;   // x-linked-* and x-repo-commit headers of the first host

  /// Returns the value of a header, or empty if the answer has no such header.
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  bool head = false;
  bool stay = false;                   // return a redirect to another host instead of following it
  bool is_file = false;                // no time limit while bytes keep coming; otherwise HttpSettings::answer_seconds
  std::int64_t from = 0;               // offset of the first byte to request
  std::string if_range;                // validator for the If-Range header if `from` > 0, or empty
  std::string token;                   // sent only to the host of `url`
  std::vector<std::string> headers{};  // "Name: value"; sent only to the host of `url`
  std::optional<std::string> post{};   // the body of a POST; redirects are not followed
};

struct HttpSettings {
  std::string user_agent;
  long stall_seconds = 30;    // a transfer fails after this time below 1 KiB/s
  long answer_seconds = 300;  // time limit of a request that is not for a file, including redirects
  std::stop_token stop;
};

class HttpClient {
 public:
  explicit HttpClient(HttpSettings settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Calls `begin` when the headers of a 2xx answer have arrived, then `write` for each piece of its body. An exception
  /// from either ends the request and is rethrown. Throws HttpError if the request fails or the status is not 2xx; a
  /// redirect that HttpRequest::stay asks for is returned.
  HttpReply send(const HttpRequest& request, const std::function<void(const HttpReply& reply)>& begin,
                 const std::function<void(std::span<const std::byte> bytes)>& write);

  /// Returns the body of a 2xx answer. Throws HttpError as send() does, and if the body has more than `max_bytes`.
  std::string text(const HttpRequest& request, std::size_t max_bytes, HttpReply* reply = nullptr);

 private:
  struct Hop;
  std::unique_ptr<HttpError> perform(Hop& hop);

  HttpSettings settings_;
  void* handle_;  // CURL
};

/// Repeats a request until it succeeds.
class Retries {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// `on_note`: told about each pause, before it begins. `deadline`: no attempt begins after it.
  Retries(int max_failures, std::stop_token stop, std::function<void(const std::string& text)> on_note,
          Deadline deadline = Deadline::max())
      : max_failures_(max_failures), deadline_(deadline), stop_(std::move(stop)), on_note_(std::move(on_note)) {}

  /// Runs `attempt` until it returns, with a pause after each transient HttpError. Rethrows any other error. Gives up
  /// and rethrows after more than `max_failures` failures in a row, or if the pause would end after the deadline.
  /// Throws HttpError if the server asks for more than 5 minutes, or if it is stopped during a pause.
  void run(const std::function<void()>& attempt);

  /// Resets the count of failures in a row. Called by an attempt that has made progress.
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
