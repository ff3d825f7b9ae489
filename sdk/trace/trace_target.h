// SPDX-License-Identifier: Apache-2.0
// Where a user wants traces: a collector, or a file in one of two forms. The settings of collectors are read from the
// environment of OpenTelemetry's programs, only for a user who asked for traces.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "sdk/trace/spans.h"

namespace baton {

struct CollectorSettings {
  std::string url;                          // "http://localhost:4318/v1/traces"
  std::vector<std::string> headers;         // "Name: value"
  std::chrono::milliseconds timeout{5000};  // of all attempts together
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
  /// is current now. Throws InputError, also where the file's folder does not exist.
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

}  // namespace baton
