// SPDX-License-Identifier: Apache-2.0
// From a record's events to where the time of each turn went.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include <baton/event.h>

#include "sdk/report/data.h"

namespace baton::cli {
namespace {

/// Pieces one behind the other, whatever the times say.
class Row {
 public:
  void until(double end, Piece::Kind kind, std::string note = "") {
    if (!(end > at_)) return;
    pieces.push_back({kind, at_, end, std::move(note)});
    at_ = end;
  }
  std::vector<Piece> pieces;

 private:
  double at_ = 0;
};

std::string shown_name(const ToolMarks& tool) { return tool.tool + (tool.ok ? "" : " (failed)"); }

std::vector<Piece> pieces_of(const TurnMarks& turn, const AgentRecord& agent) {
  using Kind = Piece::Kind;
  Row row;
  if (agent.state == TurnState::skipped || turn.shares_name) return {};
  const std::vector<std::vector<ModelCallMarks>>& attempts = turn.attempts;
  // The record's time to first token begins with the last input, which no event marks. It is that of the last attempt.
  std::optional<double> ready;
  if (attempts.size() == 1 && attempts[0][0].first_token_ms && agent.ttft_ms > 0)
    ready = *attempts[0][0].first_token_ms - agent.ttft_ms;
  if (!turn.tools.empty()) {
    const double over = turn.tools.back().end_ms, end = std::min(ready.value_or(over), over);
    double length = 0;
    std::string names;
    for (const ToolMarks& tool : turn.tools) {
      length += tool.end_ms - tool.begin_ms;
      names += (names.empty() ? "" : ", ") + shown_name(tool);
    }
    row.until(end - length, Kind::wait);
    row.until(end, Kind::tool, names);
  } else if (ready || !attempts.empty()) {
    row.until(std::min(ready.value_or(attempts[0][0].started_ms), attempts[0][0].started_ms), Kind::wait);
  }
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const std::vector<ModelCallMarks>& calls = attempts[i];
    const std::string note = attempts.size() > 1 ? fmt::format("attempt {}", i + 1) : "";
    const double started = calls.front().started_ms;
    std::optional<double> last;
    for (const ModelCallMarks& call : calls) last = call.last_token_ms ? call.last_token_ms : last;
    const double end = i + 1 == attempts.size() ? turn.over_ms.value_or(last.value_or(started))
                                                : last.value_or(attempts[i + 1].front().started_ms);
    row.until(started, i == 0 ? Kind::queue : Kind::pause);
    row.until(calls.front().first_token_ms.value_or(end), Kind::first_token, note);
    std::size_t shown = 0;
    for (const ModelCallMarks& call : calls) {
      for (const ToolMarks& tool : call.tools) {
        if (++shown > kMaxCalls) break;
        row.until(tool.begin_ms, Kind::decode, note);
        row.until(tool.end_ms, Kind::tool, shown_name(tool));
      }
    }
    row.until(end, Kind::decode, note);
  }
  if (attempts.empty() && turn.over_ms) row.until(*turn.over_ms, Kind::wait);
  return row.pieces;
}

class EventReader {
 public:
  explicit EventReader(Report& report) : report_(report) {
    for (const AgentRecord& agent : report.run.agents) names_.emplace(agent.agent, agent.round);
  }

  void read(std::string_view line, const std::string& where) {
    const JsonDocument json = RecordFields::parse(line, where);
    const RecordFields fields(*json, where, "");
    const std::string type = fields.text("type");
    if (type == "warning") {
      if (++report_.warning_count <= kMaxWarnings) report_.warnings.push_back(fields.text("message"));
      return;
    }
    if (type == "relayed") {
      Relayed relayed{fields.id("from"), fields.id("to"), round_of(fields), {}};
      relayed.slot.name = fields.object("slot").text("name");
      return add(relayed, relayed.to, relayed.round);
    }
    const bool timed = type == "agent_started" || type == "prefill" || type == "token" || type == "tool_called" ||
                       type == "agent_finished";
    if (!timed) return;
    if (fields.is_null("t_ms")) {
      report_.no_times = "the events carry no times: the version of Baton that recorded them wrote none";
      return;
    }
    now_ = std::max(now_, fields.number("t_ms"));
    const RecordFields of = type == "agent_finished" ? fields.object("record") : fields;
    const std::string agent = of.id("agent");
    const int round = round_of(of);
    if (type == "agent_started") {
      add(AgentStarted{agent, "", round, fields.count("prompt_tokens", 0)}, agent, round);
    } else if (type == "prefill") {
      const auto kv = fields.object_if_there("kv");
      add(Prefill{agent, round, kv ? kv_record(*kv) : KvRecord(), 0}, agent, round);
    } else if (type == "token") {
      add(Token{agent, round, 0, ""}, agent, round);
    } else if (type == "tool_called") {
      add(ToolCalled{agent, round, fields.text("tool"), fields.truth("ok"), "", fields.number("wall_ms"), "", ""},
          agent, round);
    } else {
      AgentFinished finished;
      finished.record.agent = agent;
      finished.record.round = round;
      finished.record.ttft_ms = of.number("ttft_ms", 0);
      finished.record.decode_ms = of.number("decode_ms", 0);
      add(finished, agent, round);
    }
  }

  void finish() {
    report_.marks = marks_.turns(report_.run);
    const std::vector<TurnMarks>& marks = report_.marks;
    const auto shares = [](const TurnMarks& turn) { return turn.shares_name; };
    if (report_.no_times.empty() && !marks.empty() && std::all_of(marks.begin(), marks.end(), shares))
      report_.no_times = "each agent worked twice in a round, and events do not tell its turns apart";
    if (!report_.no_times.empty()) return;
    for (std::size_t i = 0; i < marks.size(); ++i) {
      report_.times[i].pieces = pieces_of(marks[i], report_.run.agents[i]);
      if (i < kMaxTurns) report_.times[i].inputs = marks[i].inputs;
    }
    find_last();
  }

 private:
  static int round_of(const RecordFields& fields) {
    return static_cast<int>(std::min<std::int64_t>(fields.count("round"), 1'000'000));
  }

  /// Of the record's turns.
  void add(const Event& event, const std::string& agent, int round) {
    if (names_.count({agent, round}) != 0) marks_.add(event, now_);
  }

  /// For each turn the one whose end was nearest before its beginning.
  void find_last() {
    constexpr double kSameMoment = 1.0;  // the end of one turn and the beginning of the next pass through one queue
    std::vector<std::size_t> by_end;
    for (std::size_t i = 0; i < report_.times.size(); ++i) {
      if (!report_.times[i].pieces.empty()) by_end.push_back(i);
    }
    std::sort(by_end.begin(), by_end.end(),
              [&](std::size_t a, std::size_t b) { return report_.times[a].end_ms() < report_.times[b].end_ms(); });
    for (std::size_t i = 0; i < report_.times.size(); ++i) {
      const double limit = std::min(report_.times[i].begin_ms() + kSameMoment, report_.times[i].end_ms());
      const auto behind = std::lower_bound(by_end.begin(), by_end.end(), limit, [&](std::size_t turn, double end) {
        return report_.times[turn].end_ms() < end;
      });
      if (behind != by_end.begin() && *(behind - 1) != i) report_.times[i].last = *(behind - 1);
    }
  }

  Report& report_;
  RunMarks marks_;
  std::set<std::pair<std::string, int>> names_;
  double now_ = 0;
};

}  // namespace

void read_events(const std::string& lines, const std::string& file, Report& report) {
  EventReader reader(report);
  std::size_t number = 0;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = std::string_view(lines).substr(at, end - at);
    at = end + 1;
    ++number;
    // The last line holds the whole record once more.
    if (line.empty() || line.starts_with(R"({"type":"run_finished")")) continue;
    reader.read(line, fmt::format("{}:{}", file, number));
  }
  reader.finish();
}

}  // namespace baton::cli
