// SPDX-License-Identifier: Apache-2.0
// Attempts after failures of the network: pauses that double, or what the server asks for.
#pragma once

#include <chrono>
#include <functional>
#include <stop_token>
#include <string>

#include "sdk/pull/http.h"

namespace baton {

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
