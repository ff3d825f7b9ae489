// SPDX-License-Identifier: Apache-2.0
// Where a user wants traces: a collector, or a file in one of two forms.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "sdk/trace/collector_settings.h"
#include "sdk/trace/spans.h"

namespace baton {

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
