// SPDX-License-Identifier: Apache-2.0
// HttpLoop: HTTP requests of one server on one thread, any number at once, with connections that are used again. The
// implementation over libcurl is engine/remote/http/curl_loop.cpp.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/clock.h"

namespace baton {

/// How a request ended.
struct HttpEnd {
  std::string url;          // that was called
  long status = 0;          // status of the answer; 0: there was none
  std::string body;         // the beginning of an answer that is not 2xx
  std::string problem;      // why there is no whole answer; empty: there is one
  double wait_seconds = 0;  // what Retry-After asked for
  bool passing = false;     // another attempt may succeed: no connection, cut off, 408, 425, 429, 5xx
  bool ok() const { return status >= 200 && status < 300 && problem.empty(); }
};

struct HttpCall {
  std::string url;
  std::string body;                                      // JSON; empty: a GET
  std::string key;                                       // sent as a bearer token; empty: none
  std::chrono::milliseconds stall{600'000};              // the time without a byte after which the request has failed
  std::size_t max_bytes = std::size_t{256} << 20;        // bytes of the answer
  std::function<void(std::string_view bytes)> on_bytes;  // gets a 2xx answer; what it throws ends the request
  std::function<void(HttpEnd)> on_end;                   // exactly once, unless the call is cancelled
};

/// All callbacks and posted functions run on the loop's thread, one at a time; what they throw is dropped.
class HttpLoop {
 public:
  using CallId = std::uint64_t;

  virtual ~HttpLoop() = default;  // ends all calls without a callback, and the thread

  /// Runs `work` on the loop's thread. Any thread. Throws std::bad_alloc; there is room for some functions beforehand,
  /// and again when the loop has taken those that wait.
  virtual void post(std::function<void()> work) = 0;

  // On the loop's thread only:
  virtual CallId start(HttpCall call) = 0;
  /// Closes the connection of the call; none of its callbacks follows. Unknown ids are ignored. Not in `on_bytes`.
  virtual void cancel(CallId id) = 0;
  /// Runs `work` when the time has come.
  virtual void at(Clock::time_point when, std::function<void()> work) = 0;
};

/// Throws BackendError if this build has no HTTP.
std::unique_ptr<HttpLoop> make_http_loop();

}  // namespace baton
