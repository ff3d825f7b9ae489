// SPDX-License-Identifier: Apache-2.0
// What the turns of a run did when, by the run's events: a report's timeline and a trace (docs/traces.md) are made of
// it. All times are in milliseconds since the run started.
// A run as spans: the run, in it the turns of its agents, in these the calls of models and tools. Names and attributes
// are those of OpenTelemetry's semantic conventions for generative AI (docs/traces.md). No span holds a text that an
// agent, a tool or a user wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <baton/event.h>
#include <baton/run_record.h>

namespace baton {

struct ToolMarks {
  double begin_ms = 0, end_ms = 0;
  std::string tool;
  bool ok = true;
};

/// A prompt that the model was given, and its answer.
struct ModelCallMarks {
  double started_ms = 0;
  std::optional<double> prefilled_ms, first_token_ms, last_token_ms;
  std::int64_t prompt_tokens = 0;  // 0: unknown
  std::int64_t tokens = 0;         // tokens of the answer, as far as they were seen
  KvRecord kv{};
  std::vector<ToolMarks> tools{};  // that the answer called, one behind the other
};

struct TurnMarks {
  std::vector<ToolMarks> tools{};                       // before the prompt
  std::vector<std::vector<ModelCallMarks>> attempts{};  // none of them is empty
  std::optional<double> over_ms;                        // empty: the turn did not run here
  std::vector<std::size_t> inputs{};                    // turns whose answers it read
  /// The same agent had another turn in the same round. Events do not tell the two apart, so that nothing but
  /// `over_ms` is known.
  bool shares_name = false;
};

/// Collects the events of one run.
class RunMarks {
 public:
  /// Keeps no texts. Of what nobody would look at, as thousands of attempts of one turn, the rest is left out.
  void add(const Event& event, double t_ms);

  /// One for each turn of `record`, which is that of the same run.
  std::vector<TurnMarks> turns(const RunRecord& record) const;

 private:
  using Name = std::pair<std::string, int>;  // agent, round
  struct End {
    double t_ms = 0, ttft_ms = 0, decode_ms = 0;
  };
  struct Seen {
    TurnMarks marks;
    std::vector<std::pair<std::string, std::string>> relayed;  // agent, placeholder
    std::vector<End> ends;
  };

  static void tell_apart(std::vector<End> ends, const RunRecord& record, const std::vector<std::size_t>& same,
                         std::vector<TurnMarks>& turns);
  Seen* seen_of(const std::string& agent, int round);
  ModelCallMarks* answering(const std::string& agent, int round);
  void add_tool(const ToolCalled& event, double t_ms);

  std::map<Name, Seen> seen_;
};

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
  std::string agent{};                  // agent of the turn that it is, or belongs to; empty: the run
};

struct RunTrace {
  std::string id;                  // 32 hexadecimal digits: the same for the same record
  std::int64_t start_unix_ns = 0;  // the run's start; 0: the record does not say
  std::string version;             // version of the library that ran it
  std::vector<TraceSpan> spans{};  // the run first, each span behind its parent
};

/// `marks` has one entry for each turn of `record` (RunMarks::turns). A turn that was skipped, and one that a resumed
/// run took over, has no span.
RunTrace spans_of(const RunRecord& record, const std::vector<TurnMarks>& marks);

// A trace in OpenTelemetry's protocol (OTLP), as the JSON of an ExportTraceServiceRequest.
// A trace as a file of trace events, which ui.perfetto.dev and chrome://tracing show.

/// One line. `resource`: attributes of the program that ran, `service.name` among them. Invalid UTF-8 becomes U+FFFD.
std::string otlp_json(const RunTrace& trace, const std::map<std::string, std::string>& resource);

/// One row for the run and one for each agent if its turns do not overlap; arrows from the turns that a turn read.
/// Invalid UTF-8 becomes U+FFFD.
std::string chrome_json(const RunTrace& trace);

}  // namespace baton
