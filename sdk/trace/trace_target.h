// SPDX-License-Identifier: Apache-2.0
// Where traces go and with which settings, how they are sent, and the queue of those that wait to be sent.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <baton/event.h>

#include "sdk/trace/spans.h"

namespace baton {

struct CollectorSettings {
  std::string url;                          // "http://localhost:4318/v1/traces"
  std::vector<std::string> headers;         // "Name: value"
  std::chrono::milliseconds timeout{5000};  // limit of all attempts together
};

/// `address`: "http://host:4318", to which /v1/traces is added where it has no path, or empty: what
/// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT names, else http://localhost:4318. Headers and
/// timeout are those of OTEL_EXPORTER_OTLP_[TRACES_]HEADERS and OTEL_EXPORTER_OTLP_[TRACES_]TIMEOUT. Throws InputError
/// that names the variable.
CollectorSettings collector_settings(const std::string& address);

/// OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME; `service.name` is "baton" where they do not say it. Throws
/// InputError.
std::map<std::string, std::string> resource_attributes();

class TraceTarget {
 public:
  /// "otlp": the collector that the environment names; an address: that collector; "FILE.perfetto.json": a file of
  /// trace events; another file: lines of OTLP, to which each trace adds one. A relative path begins at the folder that
  /// is current now. Throws InputError, also if the file's folder does not exist.
  explicit TraceTarget(const std::string& text);

  bool is_file() const { return kind_ != Kind::collector; }

  /// Returns why the trace is not there, in one line; empty: it is. Waits no longer than for the collector's timeout.
  std::string write(const RunTrace& trace) const;

 private:
  enum class Kind { collector, lines, chrome };

  Kind kind_ = Kind::lines;
  CollectorSettings collector_;
  std::map<std::string, std::string> resource_;
  std::filesystem::path file_;
};

// Sends traces to a collector, in OTLP over HTTP.

/// Sends what otlp_json made. Waits at most for the timeout of the settings and a second; meanwhile it tries again what
/// may succeed later, as the protocol says. Returns why the collector does not have the trace, or has not all of it, in
/// one line without secrets; empty: it has it.
std::string send_trace(const CollectorSettings& settings, const std::string& otlp);

// Writes the traces of many runs on a thread of its own, so that no run waits for a collector.

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

  /// Any thread. If many wait already, the trace is lost.
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
