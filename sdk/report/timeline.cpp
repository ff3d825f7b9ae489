// SPDX-License-Identifier: Apache-2.0
// The timeline of a report: a row for each turn over one axis. Places on the axis are percentages, so that a narrow
// page squeezes the bars, and a zoomed one stretches them, but not the words, which are no part of the picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sdk/console/html.h"
#include "sdk/console/view.h"
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
  std::vector<double> tops_;  // of the rows
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

}  // namespace baton::cli
