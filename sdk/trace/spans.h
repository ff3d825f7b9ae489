// SPDX-License-Identifier: Apache-2.0
// RunMarks: when the turns of a run did what, collected from the run's events. A report's timeline and a trace
// (docs/traces.md) are made from it. All times are in milliseconds since the run started.
// RunTrace: a run as spans: the run, in it the turns of its agents, in these the calls of models and tools. Names and
// attributes are those of OpenTelemetry's semantic conventions for generative AI. No span holds a text that an agent, a
// tool or a user wrote.
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
  std::vector<ToolMarks> tools{};  // those that the answer called, one after another
};

struct TurnMarks {
  std::vector<ToolMarks> tools{};                       // before the prompt
  std::vector<std::vector<ModelCallMarks>> attempts{};  // none of them is empty
  std::optional<double> over_ms;                        // empty: the turn did not run here
  std::vector<std::size_t> inputs{};                    // turns whose answers it read
  /// The same agent had another turn in the same round. Events do not tell the two apart, so only `over_ms` is known.
  bool shares_name = false;
};

/// Collects the events of one run.
class RunMarks {
 public:
  /// Keeps no texts. If there is more than anybody would look at, such as thousands of attempts of one turn, the rest
  /// is left out.
  void add(const Event& event, double t_ms);

  /// Returns the marks of each turn of `record`, which must be that of the same run.
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
  std::vector<TraceSpan> spans{};  // the run first, each span after its parent
};

/// Returns the spans of a run. `marks` has one entry for each turn of `record` (RunMarks::turns). A turn that was
/// skipped, and one that a resumed run took over, has no span.
RunTrace spans_of(const RunRecord& record, const std::vector<TurnMarks>& marks);

/// Returns a trace in OpenTelemetry's protocol (OTLP), as the JSON of an ExportTraceServiceRequest in one line.
/// `resource`: attributes of the program that ran, `service.name` among them. Invalid UTF-8 becomes U+FFFD.
std::string otlp_json(const RunTrace& trace, const std::map<std::string, std::string>& resource);

/// Returns a trace as a file of trace events, which ui.perfetto.dev and chrome://tracing show. There is one row for the
/// run and one for each agent whose turns do not overlap, and an arrow from each turn that a turn read. Invalid UTF-8
/// becomes U+FFFD.
std::string chrome_json(const RunTrace& trace);

}  // namespace baton
