// SPDX-License-Identifier: Apache-2.0
// How far a download is, on stderr: one line drawn in place on a terminal, elsewhere a line every few seconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace baton::cli {

class TransferLine {
 public:
  TransferLine();
  ~TransferLine();
  TransferLine(const TransferLine&) = delete;
  TransferLine& operator=(const TransferLine&) = delete;

  /// `done` of `total` bytes; -1: the total is unknown.
  void update(const std::string& name, std::int64_t done, std::int64_t total);
  /// A line of its own; the progress goes on below it.
  void say(const std::string& text);
  /// Erases the line. Nothing is drawn afterwards until the next update.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool redraw_;
  bool drawn_ = false;
  Clock::time_point last_;
  std::deque<std::pair<Clock::time_point, std::int64_t>> samples_;  // of the last seconds, for the rate
};

}  // namespace baton::cli
