// SPDX-License-Identifier: Apache-2.0
// An HTTP server over workflows, with OpenAI's interface, and its settings (docs/serve.md). One thread talks with all
// clients; each running request has a thread of a pool, and all runs share the steps of one engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include <baton/engine.h>
#include <baton/event.h>

#include "sdk/serve/chat_request.h"

namespace baton::serve {

struct ServeOptions {
  std::string address = "127.0.0.1";  // IPv4 or IPv6; one that is not loopback needs a key
  int port = 8080;                    // 0: one that is free
  std::vector<std::string> keys{};    // that requests may carry; none: requests need no key

  std::size_t max_body_bytes = std::size_t{1} << 20;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  int max_running = 64;         // runs at a time; each has threads of its own
  int max_waiting = 256;        // requests that wait for one of them to end
  int max_connections = 1024;   // more wait in the system's queue
  int requests_per_minute = 0;  // for each key, without keys for each address; 0: any number

  std::chrono::milliseconds run_timeout = std::chrono::minutes(10);     // limit of a run; 0: none
  std::chrono::milliseconds header_timeout = std::chrono::seconds(30);  // for a whole header, idle time included
  std::chrono::milliseconds body_timeout = std::chrono::seconds(30);    // for a whole body
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);   // for what is sent at a time
  std::chrono::milliseconds keep_alive = std::chrono::seconds(15);      // between signs of life in a stream
  std::chrono::milliseconds drain_timeout = std::chrono::seconds(30);   // for running requests once a stop is requested
  std::chrono::milliseconds approval_timeout = std::chrono::minutes(10);  // for an answer; 0: nobody is asked

  /// Called with a line on each request and on what went wrong inside, never with keys or texts; from any thread, one
  /// call at a time.
  std::function<void(const std::string& line)> on_log{};

  /// Called as a run begins, on its thread; what it returns gets the run's events. Neither may throw.
  std::function<EventCallback()> follow_run{};
};

/// True for an address of this machine alone (127.0.0.0/8, ::1). Throws InputError for a text that is no address.
bool is_loopback(const std::string& address);

/// Empty if this build has a server, else why it has none.
const char* why_no_server();

class Server {
 public:
  /// Listens from now on. Throws InputError for an option that cannot be used, an address of other machines without a
  /// key among them, and ResourceError if the address cannot be bound.
  Server(const Engine& engine, ServedWorkflows workflows, ServeOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Of ServeOptions::port, or the one that was free.
  int port() const;

  /// Once. Answers until a stop is requested; then accepts nothing new, lets running requests end within
  /// ServeOptions::drain_timeout, cancels those that are left, and returns.
  void serve(const std::stop_token& stop);

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace baton::serve
