// SPDX-License-Identifier: Apache-2.0
// What a report shows: a record's folder, read and checked, and where the time of each turn went.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <baton/run_record.h>

#include "sdk/report/files.h"
#include "sdk/trace/turn_marks.h"

namespace baton::cli {

// What a page shows at most. Totals count everything.
inline constexpr std::size_t kMaxTurns = 500;
inline constexpr std::size_t kMaxWarnings = 100;
inline constexpr std::size_t kMaxTextBytes = 64 << 10;      // bytes of a prompt, an answer or an output
inline constexpr std::size_t kMaxAllTextsBytes = 16 << 20;  // bytes of all texts of a page

inline constexpr std::size_t kMaxCalls = 50;  // of tools, of a turn

/// A part of a turn's time, in ms since the run started.
struct Piece {
  enum class Kind {
    wait,         // for its inputs
    tool,         // its tools run
    queue,        // its prompt is made, or it waits for a place among `max_parallel`
    first_token,  // prefill: from being asked for to the first token
    decode,
    pause,  // between two attempts
  };
  Kind kind;
  double begin_ms = 0, end_ms = 0;
  std::string note;  // names of tools, numbers of attempts
};

struct TurnTime {
  std::vector<Piece> pieces;        // in order, none begins before the one before it ends; empty: unknown
  std::vector<std::size_t> inputs;  // turns whose answers it read
  std::optional<std::size_t> last;  // the turn whose end it waited for last, read or not

  double begin_ms() const;  // of the work
  double end_ms() const { return pieces.empty() ? 0.0 : pieces.back().end_ms; }
};

/// An answer that one turn handed to another, or, without placeholders, the order of the two alone.
struct GraphEdge {
  std::size_t from = 0, to = 0;  // turns, from < to
  std::vector<std::string> slots;
};

/// The team as it was planned.
struct TeamGraph {
  std::vector<std::string> conditions;  // one for each turn, empty: none
  std::vector<bool> unreached;          // one for each turn: of a round that the run did not begin
  std::string until;                    // when the rounds end, or empty
  std::vector<GraphEdge> edges;
};

struct Report {
  RunRecord run;
  std::vector<TurnTime> times;     // one for each of run.agents
  std::vector<TurnMarks> marks;    // likewise, what the times are made of
  std::string no_times;            // why there are no times; empty where there are
  std::optional<TeamGraph> graph;  // none: the record has no graph.json
  std::vector<std::string> warnings;
  std::size_t warning_count = 0;
  std::vector<std::optional<RecordFiles::Start>> prompts;  // of the turns that are shown
};

class RecordFields;
KvRecord kv_record(const RecordFields& fields);
/// The record of a turn. Throws Failure.
AgentRecord agent_record(const RecordFields& fields);

/// Throws Failure: kUsage when there is no such folder, kInvalidFile when it is no record or a damaged one.
Report read_report(const std::filesystem::path& folder);

/// graph.json.
TeamGraph read_graph(const std::string& bytes, const std::string& file, const RunRecord& run);

/// events.ndjson, line by line: times, warnings, who read whom.
void read_events(const std::string& lines, const std::string& file, Report& report);

}  // namespace baton::cli
