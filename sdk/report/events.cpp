// SPDX-License-Identifier: Apache-2.0
// From a record's events to where the time of each turn went.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "sdk/cli/console/view.h"
#include "sdk/report/data.h"
#include "sdk/report/fields.h"

namespace baton::cli {
namespace {

constexpr std::size_t kMaxRelayed = 1000;  // to one turn

struct Attempt {
  double started = 0;
  std::optional<double> first, last;  // token
  std::vector<Piece> calls;           // of tools, by the model
};

struct Seen {
  std::vector<Attempt> attempts;
  double tools_ms = 0, tools_over = 0;
  std::string tools;
  std::optional<double> over;
  std::vector<std::pair<std::string, std::string>> relayed;  // agent, placeholder
};

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

std::vector<Piece> pieces_of(Seen seen, const AgentRecord& agent) {
  using Kind = Piece::Kind;
  Row row;
  if (agent.state == TurnState::skipped) return {};
  // An event is seen some time after what it tells of, more so on a busy machine; the record's times are the engine's.
  if (!seen.attempts.empty() && seen.attempts.back().first && seen.over && seen.attempts.back().calls.empty()) {
    Attempt& last = seen.attempts.back();
    last.first = std::min(*last.first, *seen.over - agent.decode_ms);
    last.started = std::min(last.started, *last.first - agent.prefill_ms);
  }
  // The record's time to first token begins with the last input, which no event marks. It is that of the last attempt.
  std::optional<double> ready;
  if (seen.attempts.size() == 1 && seen.attempts[0].first && agent.ttft_ms > 0)
    ready = *seen.attempts[0].first - agent.ttft_ms;
  if (!seen.tools.empty()) {
    const double end = std::min(ready.value_or(seen.tools_over), seen.tools_over);
    row.until(end - seen.tools_ms, Kind::wait);
    row.until(end, Kind::tool, seen.tools);
  } else if (ready || !seen.attempts.empty()) {
    row.until(std::min(ready.value_or(seen.attempts[0].started), seen.attempts[0].started), Kind::wait);
  }
  for (std::size_t i = 0; i < seen.attempts.size(); ++i) {
    const Attempt& attempt = seen.attempts[i];
    const bool last = i + 1 == seen.attempts.size();
    const std::string note = seen.attempts.size() > 1 ? fmt::format("attempt {}", i + 1) : "";
    const double end = last ? seen.over.value_or(attempt.last.value_or(attempt.started))
                            : attempt.last.value_or(seen.attempts[i + 1].started);
    row.until(attempt.started, i == 0 ? Kind::queue : Kind::pause);
    row.until(attempt.first.value_or(end), Kind::first_token, note);
    for (const Piece& call : attempt.calls) {
      row.until(call.begin_ms, Kind::decode, note);
      row.until(call.end_ms, Kind::tool, call.note);
    }
    row.until(end, Kind::decode, note);
  }
  if (seen.attempts.empty() && seen.over) row.until(*seen.over, Kind::wait);
  return row.pieces;
}

/// "_history_2" at the end of a placeholder's name: 2 rounds back.
int rounds_back(const std::string& placeholder) {
  const std::string mark = "_history_";
  const std::size_t at = placeholder.rfind(mark);
  if (at == std::string::npos) return 0;
  const std::string digits = placeholder.substr(at + mark.size());
  const bool number = !digits.empty() && digits.size() < 5 && digits.find_first_not_of("0123456789") == digits.npos;
  return number ? std::stoi(digits) : 0;
}

class EventReader {
 public:
  explicit EventReader(Report& report) : report_(report), seen_(report.run.agents.size()) {
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const AgentRecord& agent = report.run.agents[i];
      const auto [at, added] = turns_.emplace(turn_name(agent.agent, agent.round), i);
      if (agent.state != TurnState::skipped) spoke_[agent.agent].emplace(agent.round, i);
      if (!added) twice_.insert(at->first);  // a graph may let an agent work twice in a round
    }
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
      Seen* seen = turn(fields.id("to"), fields);
      if (seen != nullptr && seen->relayed.size() < kMaxRelayed)
        seen->relayed.emplace_back(fields.id("from"), fields.object("slot").text("name"));
      return;
    }
    const bool timed = type == "agent_started" || type == "token" || type == "tool_called" || type == "agent_finished";
    if (!timed) return;
    if (fields.is_null("t_ms")) {
      report_.no_times = "the events carry no times: the version of Baton that recorded them wrote none";
      return;
    }
    now_ = std::max(now_, fields.number("t_ms"));
    const RecordFields of = type == "agent_finished" ? fields.object("record") : fields;
    Seen* seen = turn(of.id("agent"), of);
    if (seen == nullptr) return;
    if (type == "agent_started") {
      seen->attempts.push_back({now_, {}, {}});
    } else if (type == "token" && !seen->attempts.empty()) {
      Attempt& attempt = seen->attempts.back();
      if (!attempt.first) attempt.first = now_;
      attempt.last = now_;
    } else if (type == "tool_called") {
      const std::string name = fields.text("tool") + (fields.truth("ok") ? "" : " (failed)");
      const double wall = fields.number("wall_ms");
      if (!seen->attempts.empty()) {
        std::vector<Piece>& calls = seen->attempts.back().calls;
        if (calls.size() < kMaxCalls) calls.push_back({Piece::Kind::tool, now_ - wall, now_, name});
        return;
      }
      seen->tools += (seen->tools.empty() ? "" : ", ") + name;
      seen->tools_ms += wall;
      seen->tools_over = now_;
    } else if (type == "agent_finished") {
      seen->over = now_;
    }
  }

  void finish() {
    if (report_.no_times.empty() && twice_.size() == turns_.size() && !turns_.empty())
      report_.no_times = "each agent worked twice in a round, and events do not tell its turns apart";
    if (!report_.no_times.empty()) return;
    for (std::size_t i = 0; i < seen_.size(); ++i) report_.times[i].pieces = pieces_of(seen_[i], report_.run.agents[i]);
    for (std::size_t i = 0; i < std::min(seen_.size(), kMaxTurns); ++i) {
      for (const auto& [from, placeholder] : seen_[i].relayed) add_input(i, from, rounds_back(placeholder));
    }
    find_last();
  }

 private:
  Seen* turn(const std::string& agent, const RecordFields& fields) {
    const std::string name =
        turn_name(agent, static_cast<int>(std::min<std::int64_t>(fields.count("round"), 1'000'000)));
    const auto found = turns_.find(name);
    return found == turns_.end() || twice_.count(name) != 0 ? nullptr : &seen_[found->second];
  }

  /// Rounds that ended early leave a decision agent with answers of an earlier round than its own.
  void add_input(std::size_t reader, const std::string& from, int back) {
    const auto rounds = spoke_.find(from);
    if (rounds == spoke_.end()) return;
    const auto behind = rounds->second.upper_bound(report_.run.agents[reader].round - back);
    if (behind == rounds->second.begin()) return;
    const std::size_t turn = std::prev(behind)->second;
    std::vector<std::size_t>& inputs = report_.times[reader].inputs;
    if (std::find(inputs.begin(), inputs.end(), turn) == inputs.end()) inputs.push_back(turn);
  }

  /// For each turn the one whose end was nearest before its beginning.
  void find_last() {
    constexpr double kSameMoment = 1.0;  // the end of one turn and the beginning of the next pass through one queue
    std::vector<std::size_t> by_end;
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      if (!report_.times[i].pieces.empty()) by_end.push_back(i);
    }
    std::sort(by_end.begin(), by_end.end(),
              [&](std::size_t a, std::size_t b) { return report_.times[a].end_ms() < report_.times[b].end_ms(); });
    for (std::size_t i = 0; i < seen_.size(); ++i) {
      const double limit = std::min(report_.times[i].begin_ms() + kSameMoment, report_.times[i].end_ms());
      const auto behind = std::lower_bound(by_end.begin(), by_end.end(), limit, [&](std::size_t turn, double end) {
        return report_.times[turn].end_ms() < end;
      });
      if (behind != by_end.begin() && *(behind - 1) != i) report_.times[i].last = *(behind - 1);
    }
  }

  Report& report_;
  std::vector<Seen> seen_;
  std::map<std::string, std::size_t> turns_;
  std::set<std::string> twice_;
  std::map<std::string, std::map<int, std::size_t>> spoke_;  // by agent and round: turns that were not skipped
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
