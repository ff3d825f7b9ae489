// SPDX-License-Identifier: Apache-2.0
// The timeline of a report: a row for each turn over one axis. Places on the axis are percentages, so that a narrow
// page squeezes the bars, and a zoomed one stretches them, but not the words, which are no part of the picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <baton/event.h>

#include "sdk/console/html.h"
#include "sdk/console/view.h"
#include "sdk/report/data.h"
#include "sdk/report/page.h"

namespace baton::cli {
namespace {

constexpr double kTop = 26, kRow = 46, kSkippedRow = 22, kBar = 22, kThick = 12, kBelow = 18;
constexpr double kTall = 500;  // a higher picture has its axis below it as well
constexpr int kMaxZoom = 32;   // as in page.js

struct PieceStyle {
  const char* style;
  const char* name;
  const char* meaning;
};

const PieceStyle& kind_of(Piece::Kind kind) {
  static const std::map<Piece::Kind, PieceStyle> kKinds = {
      {Piece::Kind::wait, {"wait", "waiting for inputs", ""}},
      {Piece::Kind::tool, {"tool", "tools", ""}},
      {Piece::Kind::queue, {"queue", "queued", "the prompt is being built, or max_parallel is reached"}},
      {Piece::Kind::first_token, {"first", "to the first token", "prefill"}},
      {Piece::Kind::decode, {"decode", "decoding", ""}},
      {Piece::Kind::pause, {"pause", "pause between attempts", ""}}};
  return kKinds.at(kind);
}

class Timeline {
 public:
  explicit Timeline(const Report& report) : report_(report), shown_(std::min(report.times.size(), kMaxTurns)) {
    total_ = report.run.wall_ms;
    for (const TurnTime& time : report.times) total_ = std::max(total_, time.end_ms());
    total_ = std::max(total_, 1e-3);
    height_ = kTop;
    for (std::size_t i = 0; i < shown_; ++i) {
      tops_.push_back(height_);
      height_ += report.run.agents[i].state == TurnState::skipped ? kSkippedRow : kRow;
    }
    height_ += kBelow;
    mark_way();
  }

  /// The words of the rows over the picture of their times, which scrolls when it is zoomed (page.js).
  Markup lanes() const {
    Markup names;
    for (std::size_t i = 0; i < shown_; ++i) names += caption(i);
    return Markup(
               "<div class=\"lanes\" data-zoom=\"1\">\n<div class=\"zoom\" data-script hidden>Zoom <button "
               "type=\"button\" "
               "value=\"out\" aria-label=\"Zoom out\">−</button><output>1 ×</output><button type=\"button\" "
               "value=\"in\" "
               "aria-label=\"Zoom in\">+</button><button type=\"button\" value=\"all\">whole run</button></div>\n"
               "<div class=\"stage\"><div class=\"track\" tabindex=\"0\" role=\"region\" aria-label=\"Times of the "
               "turns; "
               "the keys + and - zoom\">\n") +
           svg() + "</div>\n<ol class=\"names\">\n" + names + "</ol></div>\n</div>\n";
  }

  Markup legend() const {
    Markup out = "<ul class=\"legend\">\n";
    for (const auto kind : {Piece::Kind::wait, Piece::Kind::tool, Piece::Kind::queue, Piece::Kind::first_token,
                            Piece::Kind::decode, Piece::Kind::pause}) {
      if (!has(kind)) continue;
      const PieceStyle& known = kind_of(kind);
      const Markup sample = kind == Piece::Kind::wait ? Markup("y=\"40%\" height=\"3\"") : Markup("height=\"100%\"");
      // Events do not tell when the inputs of a turn with tools were complete.
      const bool either = kind == Piece::Kind::wait && has(Piece::Kind::tool);
      const std::string meaning = either ? "before tools also for max_parallel" : known.meaning;
      out += html("<li><svg aria-hidden=\"true\"><rect width=\"100%\" {} class=\"{}\"/></svg>{}{}</li>\n", sample,
                  known.style, known.name, meaning.empty() ? Markup() : html(" ({})", meaning));
    }
    const bool reads = std::any_of(report_.times.begin(), report_.times.end(),
                                   [](const TurnTime& time) { return !time.inputs.empty(); });
    const auto ring = [&](const char* style, const char* meaning) {
      out += html("<li><svg aria-hidden=\"true\"><circle cx=\"50%\" cy=\"50%\" r=\"3.5\" class=\"{}\"/></svg>{}</li>\n",
                  style, meaning);
    };
    if (reads) ring("arrived", "an answer that the turn reads arrives");
    if (reads && std::count(way_.begin(), way_.end(), true) > 1)
      ring("arrived way", "the last one it waited for, on the critical path");
    return out + "</ul>\n";
  }

  /// What the time on the critical path went to.
  Markup findings() const {
    double spent[6] = {};
    double longest = 0;
    std::size_t slowest = 0;
    for (std::size_t i = 0; i < report_.times.size(); ++i) {
      if (!way_[i]) continue;
      for (const Piece& piece : report_.times[i].pieces) {
        if (piece.kind != Piece::Kind::wait) spent[static_cast<int>(piece.kind)] += piece.end_ms - piece.begin_ms;
      }
      if (report_.run.agents[i].ttft_ms > longest) {
        longest = report_.run.agents[i].ttft_ms;
        slowest = i;
      }
    }
    double all = 0;
    for (const double part : spent) all += part;
    if (all <= 0) return "";
    const auto count = std::count(way_.begin(), way_.end(), true);
    Markup parts;
    const auto add = [&](double ms, const std::string& name) {
      if (ms / total_ < 0.005) return;
      parts += html("{}{} {} ({})", parts.empty() ? "" : ", ", name, duration(ms), percent(ms, total_));
    };
    add(spent[static_cast<int>(Piece::Kind::decode)], "decoding");
    add(spent[static_cast<int>(Piece::Kind::first_token)], "first tokens");
    add(spent[static_cast<int>(Piece::Kind::tool)], "tools");
    add(spent[static_cast<int>(Piece::Kind::queue)], "queued");
    add(spent[static_cast<int>(Piece::Kind::pause)], "pauses between attempts");
    add(std::max(0.0, total_ - all), "the rest");
    Markup out = html("<li>Critical path of {} {}: {}.</li>\n", grouped(count),
                      count == 1 ? "turn" : "turns, each of which waited for the one before it", parts);
    if (longest > 0 && count > 1) {
      out += html("<li>The longest time to first token on the critical path: {}, {}.</li>\n",
                  turn_link(report_, slowest, "reuse"), duration(longest));
    }
    return out;
  }

 private:
  Markup svg() const {
    Markup out = html(
        "<svg class=\"picture\" id=\"timeline-picture\" width=\"100%\" height=\"{:.0f}\" role=\"img\" "
        "aria-labelledby=\"tl-title tl-desc\">\n<title id=\"tl-title\">Timeline of the run</title>\n"
        "<desc id=\"tl-desc\">One row for each of {} turns over {}; the table of turns has the numbers.</desc>\n",
        height_, shown_, duration(total_));
    for (int zoom = 1; zoom <= kMaxZoom; zoom *= 2) out += axis(zoom);
    for (std::size_t i = 0; i < shown_; ++i) out += hand_overs(i);
    for (std::size_t i = 0; i < shown_; ++i) out += row(i);
    return out + "</svg>\n";
  }

  /// Back from the turn that ended last, by what each waited for.
  void mark_way() {
    way_.assign(report_.times.size(), false);
    std::optional<std::size_t> at;
    for (std::size_t i = 0; i < report_.times.size(); ++i) {
      const bool later = !at || report_.times[i].end_ms() > report_.times[*at].end_ms();
      if (!report_.times[i].pieces.empty() && later) at = i;
    }
    for (; at && !way_[*at]; at = report_.times[*at].last) way_[*at] = true;
  }

  bool has(Piece::Kind kind) const {
    return std::any_of(report_.times.begin(), report_.times.end(), [&](const TurnTime& time) {
      return std::any_of(time.pieces.begin(), time.pieces.end(), [&](const Piece& p) { return p.kind == kind; });
    });
  }

  double x(double ms) const { return 100 * std::clamp(ms / total_, 0.0, 1.0); }
  double y(std::size_t row) const { return tops_[row]; }

  /// The axis at one zoom: a round step that cuts what is seen at a time into at most four.
  Markup axis(int zoom) const {
    const double seen = total_ / zoom;
    const double unit = seen < 10'000 ? 1 : seen < 600'000 ? 1000 : 60'000;
    const char* const name = seen < 10'000 ? "ms" : seen < 600'000 ? "s" : "min";
    double step = std::pow(10.0, std::floor(std::log10(seen / unit / 4)));
    for (const double factor : {2.0, 2.5, 2.0}) {  // 1, 2, 5, 10
      if (seen / unit / step > 4) step *= factor;
    }
    const int digits = std::max(0, static_cast<int>(-std::floor(std::log10(step) + 1e-9)));
    Markup out = html("<g class=\"ticks z{}\">\n", zoom);
    for (int i = 0; i * step * unit <= total_ * (1 + 1e-9); ++i) {
      const double at = x(i * step * unit), value = i * step;
      const std::string label = digits > 0 ? fmt::format("{:.{}f}", value, digits) : grouped(std::llround(value));
      const Markup anchor = i == 0 ? Markup() : (100 - at) * zoom < 14 ? Markup(" end") : Markup(" middle");
      out += html(
          "<line class=\"grid\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"18\" y2=\"{1:.0f}\"/>"
          "<text class=\"soft{2}\" x=\"{0:.3f}%\" y=\"12\">{3} {4}</text>\n",
          at, height_ - 4, anchor, label, name);
      if (height_ > kTall)
        out += html("<text class=\"soft{}\" x=\"{:.3f}%\" y=\"{:.0f}\">{} {}</text>\n", anchor, at, height_ - 4, label,
                    name);
    }
    return out + "</g>\n";
  }

  /// From the end of a turn down, or up, to the rows of those that read its answer.
  Markup hand_overs(std::size_t from) const {
    if (report_.times[from].pieces.empty()) return "";
    const double at = x(report_.times[from].end_ms());
    double top = y(from) + kBar + kThick / 2, bottom = top;
    Markup marks, way;
    for (std::size_t to = 0; to < shown_; ++to) {
      const TurnTime& reader = report_.times[to];
      const bool reads = std::find(reader.inputs.begin(), reader.inputs.end(), from) != reader.inputs.end();
      const bool last = way_[to] && reader.last == from;  // it may have waited for a round or a place alone
      const double arrives = y(to) + kBar + kThick / 2;
      if (reads) {
        marks += html("<circle class=\"arrived{}\" cx=\"{:.3f}%\" cy=\"{:.0f}\" r=\"3.5\"/>",
                      last ? Markup(" way") : Markup(), at, arrives);
      }
      if (last) {
        way += html("<line class=\"handed way\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>", at,
                    y(from) + kBar + kThick / 2, arrives);
      }
      if (!reads && !last) continue;
      top = std::min(top, arrives);
      bottom = std::max(bottom, arrives);
    }
    if (top == bottom) return "";
    return html("<line class=\"handed\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"{1:.0f}\" y2=\"{2:.0f}\"/>{3}{4}\n", at,
                top, bottom, way, marks);
  }

  Markup row(std::size_t i) const {
    const AgentRecord& agent = report_.run.agents[i];
    Markup out = "<g class=\"row\">\n";
    for (const Piece& piece : report_.times[i].pieces) out += bar(piece, i, turn_name(agent));
    return out + "</g>\n";
  }

  Markup caption(std::size_t i) const {
    const AgentRecord& agent = report_.run.agents[i];
    const std::string name = turn_name(agent);
    Markup right;
    if (agent.state != TurnState::ok) right = html("{}{}", name_of(agent.state), agent.output_tokens > 0 ? ", " : "");
    if (agent.state == TurnState::skipped) {
      if (!agent.error.empty()) right += html(": {}", cut(agent.error, 60));
    } else if (agent.output_tokens > 0) {
      right += html("{}<span class=\"wide\"> prompt</span> → {} tokens, first after {}", grouped(agent.prompt_tokens),
                    grouped(agent.output_tokens), duration(agent.ttft_ms));
    } else if (agent.state == TurnState::ok) {
      right += "no tokens";
    }
    if (agent.state != TurnState::skipped && report_.times[i].pieces.empty())
      right += right.empty() ? Markup("no times") : Markup(", no times");
    return html("<li style=\"top:{:.0f}px\"><a href=\"#text-{}\" title=\"{}\">{}</a><span>{}</span></li>\n", y(i) + 5,
                i + 1, name, name, right);
  }

  Markup bar(const Piece& piece, std::size_t i, const std::string& name) const {
    const PieceStyle& kind = kind_of(piece.kind);
    const bool thin = piece.kind == Piece::Kind::wait || piece.kind == Piece::Kind::pause;
    const double thick = thin ? 3 : kThick;
    // The end is rounded, not the width: neighbours never overlap.
    const double begin = std::round(x(piece.begin_ms) * 1000) / 1000, end = std::round(x(piece.end_ms) * 1000) / 1000;
    if (end <= begin) return "";
    return html(
        "<rect class=\"{}\" x=\"{:.3f}%\" y=\"{:.1f}\" width=\"{:.3f}%\" height=\"{:.0f}\"><title>{}: {}{}: {} "
        "(from {} to {})</title></rect>\n",
        kind.style, begin, y(i) + kBar + (kThick - thick) / 2, end - begin, thick, name, kind.name,
        piece.note.empty() ? Markup() : html(", {}", cut(piece.note, 200)), duration(piece.end_ms - piece.begin_ms),
        duration(piece.begin_ms), duration(piece.end_ms));
  }

  const Report& report_;
  std::size_t shown_;
  double total_ = 0, height_ = 0;
  std::vector<double> tops_;  // one for each row
  std::vector<bool> way_;
};

}  // namespace

Markup timeline_section(const Report& report) {
  Markup out = "<section id=\"timeline\">\n<h2>Timeline</h2>\n";
  if (report.run.agents.empty()) return out + "<p>The run had no turns.</p>\n</section>\n";
  if (!report.no_times.empty()) {
    return out +
           html("<p>No timeline: {}. Durations are in the table of turns.</p>\n</section>\n", escaped(report.no_times));
  }
  const Timeline timeline(report);
  const Markup findings = timeline.findings();
  if (!findings.empty()) out += html("<ul class=\"found\">\n{}</ul>\n", findings);
  out += timeline.legend() + timeline.lanes();
  if (report.run.agents.size() > kMaxTurns) {
    out += html("<p class=\"muted\">The first {} of {} turns.</p>\n", kMaxTurns,
                grouped(static_cast<long long>(report.run.agents.size())));
  }
  return out + "</section>\n";
}

// From a record's events to where the time of each turn went.

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
    row.until(end - length, Piece::Kind::wait);
    row.until(end, Piece::Kind::tool, names);
  } else if (ready || !attempts.empty()) {
    row.until(std::min(ready.value_or(attempts[0][0].started_ms), attempts[0][0].started_ms), Piece::Kind::wait);
  }
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const std::vector<ModelCallMarks>& calls = attempts[i];
    const std::string note = attempts.size() > 1 ? fmt::format("attempt {}", i + 1) : "";
    const double started = calls.front().started_ms;
    std::optional<double> last;
    for (const ModelCallMarks& call : calls) last = call.last_token_ms ? call.last_token_ms : last;
    const double end = i + 1 == attempts.size() ? turn.over_ms.value_or(last.value_or(started))
                                                : last.value_or(attempts[i + 1].front().started_ms);
    row.until(started, i == 0 ? Piece::Kind::queue : Piece::Kind::pause);
    row.until(calls.front().first_token_ms.value_or(end), Piece::Kind::first_token, note);
    std::size_t shown = 0;
    for (const ModelCallMarks& call : calls) {
      for (const ToolMarks& tool : call.tools) {
        if (++shown > kMaxCalls) break;
        row.until(tool.begin_ms, Piece::Kind::decode, note);
        row.until(tool.end_ms, Piece::Kind::tool, shown_name(tool));
      }
    }
    row.until(end, Piece::Kind::decode, note);
  }
  if (attempts.empty() && turn.over_ms) row.until(*turn.over_ms, Piece::Kind::wait);
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
      if (++report_.warning_count > kMaxWarnings) return;
      const std::string code = fields.text("code", "");  // earlier versions wrote none
      report_.warnings.push_back(fields.text("message") + (code.empty() ? "" : " (" + code + ")"));
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
