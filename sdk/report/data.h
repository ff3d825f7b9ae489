// SPDX-License-Identifier: Apache-2.0
// What a report shows: a record's folder, read and checked, and where the time of each turn went. The folder may come
// from anybody: only regular files are read, no links, nothing that blocks, no more than a limit. Every field is
// checked before it is used; an error is one line: file, field, what was expected, what was found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <baton/run_record.h>
#include <baton/states.h>

#include "engine/base/json/json_reader.h"
#include "engine/base/system/file.h"
#include "sdk/trace/spans.h"

namespace baton::cli {

class RecordFiles {
 public:
  /// Throws Failure with kUsage when there is no such folder.
  explicit RecordFiles(std::filesystem::path folder);

  struct Start {
    std::string bytes;  // no more than was asked for
    std::uint64_t size = 0;
  };

  /// The first `limit` bytes of `name`, which may be in a sub-folder; nothing when it is not there. Throws Failure with
  /// kInvalidFile for what is not a regular file.
  std::optional<Start> start_of(const std::string& name, std::size_t limit) const;

  /// The whole file; a larger one than `limit` is a Failure too.
  std::optional<std::string> whole(const std::string& name, std::size_t limit) const;

  /// "runs/1/run.json", for messages.
  std::string path_of(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
  OpenFolder opened_;
};

/// Writes a page whole or not at all. Over an earlier page, but over nothing else. Throws Failure.
void write_page(const std::filesystem::path& path, const std::string& page);

/// The first bytes of every page, which tell a page from a file that must not be lost.
inline constexpr const char* kPageStart = "<!doctype html>\n<!-- baton report -->\n";

/// An object. Every getter throws Failure with kInvalidFile for a field of another kind, and for a missing one unless
/// it is told what to take instead.
class RecordFields {
 public:
  using Json = nlohmann::json;

  /// Parses bytes that must be one JSON object. `where` is the file, or the file and a line.
  static JsonDocument parse(std::string_view bytes, const std::string& where);

  /// The names in the object `object` of the record that `bytes` hold, in the order of the file.
  static std::vector<std::string> names(std::string_view bytes, const std::string& object);

  /// `where`: the file; `path`: the object in it, "" or "agents[2].". Both outlive the fields' object.
  RecordFields(const Json& object, std::string where, std::string path);

  std::string text(const char* name, std::optional<std::string> otherwise = {}) const;
  /// One of the names of an enumeration (baton/states.h).
  template <typename Enum>
  Enum one_of(const char* name) const {
    return static_cast<Enum>(index_in(name, kNamesOf<Enum>));
  }
  /// The same; none if the field is missing or empty.
  template <typename Enum>
  std::optional<Enum> one_of_if_there(const char* name) const {
    if (text(name, "").empty()) return std::nullopt;
    return one_of<Enum>(name);
  }
  /// An agent's id: safe inside a file name.
  std::string id(const char* name) const;
  /// A turn's: an id, in later rounds "#" and the number of the round behind it. Empty if it is missing or empty.
  std::string turn_id(const char* name) const;
  /// 0 to 10^12.
  std::int64_t count(const char* name, std::optional<std::int64_t> otherwise = {}) const;
  std::uint64_t unsigned_number(const char* name) const;
  /// Finite, 0 to 10^15.
  double number(const char* name, std::optional<double> otherwise = {}) const;
  double share(const char* name, std::optional<double> otherwise = {}) const;  // 0 to 1
  bool truth(const char* name, std::optional<bool> otherwise = {}) const;
  RecordFields object(const char* name) const;
  /// Null when it is missing or null.
  std::optional<RecordFields> object_if_there(const char* name) const;
  std::vector<RecordFields> list(const char* name) const;     // a list of objects
  std::vector<std::string> texts_of(const char* name) const;  // a list of texts
  /// Names and values of an object of texts.
  std::vector<std::pair<std::string, std::string>> texts(const char* name) const;

  /// The same of numbers from 0 to 1.
  std::vector<std::pair<std::string, double>> shares(const char* name) const;

  bool is_null(const char* name) const;  // or missing

  [[noreturn]] void fail(const std::string& name, const std::string& expected) const;

 private:
  std::size_t index_in(const char* name, std::span<const std::string_view> values) const;
  const Json* find(const char* name) const;
  RecordFields child(const Json& value, const std::string& name) const;
  double number_up_to(const char* name, double most, const char* expected, std::optional<double> otherwise) const;

  const Json* object_;
  std::string where_, path_;
};

// The limits of what a page shows. Totals count everything.
inline constexpr std::size_t kMaxTurns = 500;
inline constexpr std::size_t kMaxWarnings = 100;
inline constexpr std::size_t kMaxTextBytes = 64 << 10;      // bytes of a prompt, an answer or an output
inline constexpr std::size_t kMaxAllTextsBytes = 16 << 20;  // bytes of all texts of a page

inline constexpr std::size_t kMaxCalls = 50;  // tool calls of a turn

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

  double begin_ms() const;  // when the work began
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
  std::string no_times;            // why there are no times; empty if there are
  std::optional<TeamGraph> graph;  // none: the record has no graph.json
  std::vector<std::string> warnings;
  std::size_t warning_count = 0;
  std::vector<std::optional<RecordFiles::Start>> prompts;  // one for each turn that is shown
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
