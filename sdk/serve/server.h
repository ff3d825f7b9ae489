// SPDX-License-Identifier: Apache-2.0
// An HTTP server over workflows, with OpenAI's interface (docs/serve.md). One thread talks with all clients; each
// running request has a thread of a pool, and all runs share the steps of one engine.
#pragma once

#include <memory>
#include <stop_token>

#include <baton/engine.h>

#include "sdk/serve/serve_options.h"
#include "sdk/serve/served_workflow.h"

namespace baton::serve {

/// Empty where this build has a server, else why it has none.
const char* why_no_server();

class Server {
 public:
  /// Listens from now on. Throws InputError for an option that cannot be used, an address of other machines without a
  /// key among them, and ResourceError where the address cannot be bound.
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
