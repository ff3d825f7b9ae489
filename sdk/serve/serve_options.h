// SPDX-License-Identifier: Apache-2.0
// The settings of a server, with their defaults (docs/serve.md).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <baton/event.h>

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
  int requests_per_minute = 0;  // of a key, without keys of an address; 0: any number

  std::chrono::milliseconds run_timeout = std::chrono::minutes(10);     // of a run; 0: none
  std::chrono::milliseconds header_timeout = std::chrono::seconds(30);  // for a whole header, idle time included
  std::chrono::milliseconds body_timeout = std::chrono::seconds(30);    // for a whole body
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);   // for what is sent at a time
  std::chrono::milliseconds keep_alive = std::chrono::seconds(15);      // between signs of life in a stream
  std::chrono::milliseconds drain_timeout = std::chrono::seconds(30);   // for running requests once a stop is requested

  /// Called with a line on each request and on what went wrong inside, never with keys or texts; from any thread, one
  /// call at a time.
  std::function<void(const std::string& line)> on_log{};

  /// Called as a run begins, on its thread; what it returns gets the run's events. Neither may throw.
  std::function<EventCallback()> follow_run{};
};

/// True for an address of this machine alone (127.0.0.0/8, ::1). Throws InputError for a text that is no address.
bool is_loopback(const std::string& address);

}  // namespace baton::serve
