// SPDX-License-Identifier: Apache-2.0
// The state that all connections of a server share. For the server's thread, except where a member says otherwise.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <baton/engine.h>

#include "sdk/serve/admission.h"
#include "sdk/serve/chat_request.h"
#include "sdk/serve/metrics.h"
#include "sdk/serve/served_run.h"
#include "sdk/serve/server.h"

namespace baton::serve {

class Connection;

struct ServerCore {
  ServerCore(Engine of_runs, ServedWorkflows served, ServeOptions settings)
      : engine(std::move(of_runs)),
        workflows(std::move(served)),
        options(std::move(settings)),
        keys(options.keys),
        rate(options.requests_per_minute),
        approvals(options.approval_timeout),
        pool(static_cast<std::size_t>(options.max_running)) {}

  /// Any thread.
  void log(const std::string& line) {
    if (!options.on_log) return;
    const std::lock_guard lock(log_mutex);
    options.on_log(line);
  }
  /// Connections close after the reply that they are at, and nobody is asked any more.
  bool draining() const { return approvals.is_stopped(); }
  ServerLoad load() const { return {running, waiting, static_cast<int>(connections.size())}; }

  const Engine engine;
  const ServedWorkflows workflows;
  const ServeOptions options;
  const ApiKeys keys;
  const long long started = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  RateLimit rate;
  Metrics metrics;                    // any thread
  Approvals approvals;                // any thread
  std::atomic<int> running = 0;       // runs
  std::atomic<int> waiting = 0;       // requests in the pool's queue
  std::function<void()> on_closed{};  // a connection has ended
  std::set<Connection*> connections;
  std::mutex log_mutex;
  boost::asio::io_context io{1};
  boost::asio::thread_pool pool;  // runs the workflows
};

// The page at /: lists the workflows, runs one and shows its events. It is one file, made of page.html, page.js and
// what sdk/web has for all pages.

std::string_view page();

/// The page takes nothing from elsewhere, runs no script but its own, talks with its own server alone, and is no part
/// of another page.
std::string_view page_policy();

}  // namespace baton::serve
