// SPDX-License-Identifier: Apache-2.0
// Writes the traces of many runs on a thread of its own, so that no run waits for a collector.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include <baton/event.h>

#include "sdk/trace/spans.h"
#include "sdk/trace/trace_target.h"

namespace baton {

class TraceQueue {
 public:
  /// `on_log` gets a line when traces begin to be lost, and when they arrive again; on the queue's thread.
  TraceQueue(TraceTarget target, std::function<void(const std::string& line)> on_log);
  /// Writes what is queued, until one cannot be written.
  ~TraceQueue();
  TraceQueue(const TraceQueue&) = delete;
  TraceQueue& operator=(const TraceQueue&) = delete;

  /// For the events of one run, whose trace is then queued. The queue must outlive the run.
  EventCallback follow();

  /// Any thread. Where many wait already, the trace is lost.
  void add(RunTrace trace);

 private:
  void work(const std::stop_token& stop);
  void tell(const std::string& problem, std::size_t lost);

  const TraceTarget target_;
  const std::function<void(const std::string&)> on_log_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<RunTrace> waiting_;
  std::size_t lost_ = 0;  // since the last one that was written
  bool told_ = false;     // for the thread alone
  std::jthread thread_;
};

}  // namespace baton
