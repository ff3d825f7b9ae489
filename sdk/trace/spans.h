// SPDX-License-Identifier: Apache-2.0
// A run as spans: the run, in it the turns of its agents, in these the calls of models and tools. Names and attributes
// are those of OpenTelemetry's semantic conventions for generative AI (docs/traces.md). No span holds a text that an
// agent, a tool or a user wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <baton/run_record.h>

#include "sdk/trace/turn_marks.h"

namespace baton {

using SpanValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::string>>;
using SpanAttributes = std::vector<std::pair<std::string, SpanValue>>;

/// Something that happened at one moment of a span.
struct SpanMoment {
  double at_ms = 0;
  std::string name;
  SpanAttributes attributes{};
};

/// Times are in milliseconds since the run started; a span lies within its parent.
struct TraceSpan {
  std::uint64_t id = 0;      // never 0
  std::uint64_t parent = 0;  // 0: the run itself
  std::string name;
  bool calls_out = false;  // kind CLIENT: to a server; otherwise INTERNAL
  double begin_ms = 0, end_ms = 0;
  bool failed = false;
  SpanAttributes attributes{};
  std::vector<SpanMoment> moments{};
  std::vector<std::uint64_t> inputs{};  // spans of turns whose answers it read
  std::string agent{};                  // of the turn that it is, or belongs to; empty: the run
};

struct RunTrace {
  std::string id;                  // 32 hexadecimal digits: the same for the same record
  std::int64_t start_unix_ns = 0;  // the run's start; 0: the record does not say
  std::string version;             // of the library that ran it
  std::vector<TraceSpan> spans{};  // the run first, each span behind its parent
};

/// `marks` has one entry for each turn of `record` (RunMarks::turns). A turn that was skipped, and one that a resumed
/// run took over, has no span.
RunTrace spans_of(const RunRecord& record, const std::vector<TurnMarks>& marks);

}  // namespace baton
