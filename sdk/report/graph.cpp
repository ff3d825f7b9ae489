// SPDX-License-Identifier: Apache-2.0
// The picture of the team: its turns, who handed what to whom and how, and under which conditions.
#include <baton/reuse_method.h>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "sdk/cli/console/html.h"
#include "sdk/cli/console/view.h"
#include "sdk/report/graph_layout.h"
#include "sdk/report/page.h"

namespace baton::cli {
namespace {

constexpr std::size_t kMaxNodes = 60;
constexpr std::size_t kMaxLines = 5000;           // 60 turns that all read each other have 1770
constexpr std::size_t kMaxCompared = 10'000'000;  // names of placeholders, over all lines
constexpr std::size_t kMaxInTitle = 50;           // placeholders in the title of a line
constexpr double kLineHeight = 17, kNodePadding = 13;

struct Line {
  const char* style;
  const char* meaning;
};

enum Kind { computed, exact, approximate, order, unused };
constexpr Line kLines[] = {{"computed", "computed again in full"},
                           {"exact", "exact KV, handed over or computed ahead"},
                           {"approximate", "approximate KV, handed over"},
                           {"order", "waits for the turn, reads nothing of it"},
                           {"unused", "the reader did not run"}};

class TeamPicture {
 public:
  TeamPicture(const Report& report, const TeamGraph& graph) : report_(report), graph_(graph) {
    std::map<std::size_t, std::size_t> places;  // in the picture
    for (std::size_t i = 0; i < report.run.agents.size() && turns_.size() < kMaxNodes; ++i) {
      if (graph.unreached[i]) continue;
      places.emplace(i, turns_.size());
      turns_.push_back(i);
      conditions_ = conditions_ || !graph.conditions[i].empty();
    }
    for (const GraphEdge& one : graph.edges) {
      const auto from = places.find(one.from), to = places.find(one.to);
      if (from == places.end() || to == places.end()) continue;
      ++lines_;
      compared_ += one.slots.size() * report.run.agents[one.to].slots.size();
      if (!is_too_large()) edges_.push_back({from->second, to->second, one.slots});
    }
  }

  Markup draw() {
    if (is_too_large()) {
      return html("<p>No picture: the graph is too large to draw, with {} lines between {} turns.</p>\n",
                  grouped(static_cast<long long>(lines_)), turns_.size());
    }
    const double height = (conditions_ ? 5 : 3) * kLineHeight + kNodePadding;
    const GraphLayout layout = graph_layout(turns_.size(), edges_, height);
    std::map<std::size_t, std::map<std::string, int>> methods;  // by reader
    Markup lines;
    for (std::size_t i = 0; i < edges_.size(); ++i) lines += line(edges_[i], layout.paths[i], methods);
    Markup out =
        legend() + html(
                       "<div class=\"scroll graph\" tabindex=\"0\" role=\"region\" aria-label=\"Graph of the team\">"
                       "<div class=\"canvas\" style=\"width:{0:.0f}px;height:{1:.0f}px\">\n<svg width=\"{0:.0f}\" "
                       "height=\"{1:.0f}\" aria-hidden=\"true\">{2}</svg>\n",
                       layout.width, layout.height, lines);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      const GraphLayout::Place& place = layout.turns[i];
      out += node(
          i, html("left:{:.0f}px;top:{:.0f}px;width:{:.0f}px;height:{:.0f}px", place.x, place.y, kNodeWidth, height));
      if (const auto found = methods.find(i); found != methods.end()) out += label(found->second, place);
    }
    out += "</div></div>\n";
    if (!graph_.until.empty()) out += html("<p>The rounds end once <code>{}</code>.</p>\n", bdi(graph_.until, 300));
    const auto unreached = std::count(graph_.unreached.begin(), graph_.unreached.end(), true);
    const std::size_t reached = report_.run.agents.size() - static_cast<std::size_t>(unreached);
    if (unreached > 0)
      out += html("<p class=\"muted\">Without {} turns of rounds that did not begin.</p>\n", unreached);
    if (reached > turns_.size())
      out += html("<p class=\"muted\">The first {} of {} turns.</p>\n", turns_.size(), reached);
    return out;
  }

 private:
  /// Of a record that no run wrote.
  bool is_too_large() const { return lines_ > kMaxLines || compared_ > kMaxCompared; }

  /// How the answer came into the reader's prompt; its methods are counted.
  Kind kind_of(const GraphEdge& one, std::map<std::string, int>& methods, Markup& title) const {
    const AgentRecord& reader = turn(one.to);
    Kind kind = one.slots.empty() ? order : unused;
    std::size_t named = 0;
    for (const SlotRecord& slot : reader.slots) {
      if (std::find(one.slots.begin(), one.slots.end(), slot.name) == one.slots.end()) continue;
      ++methods[slot.method];
      const ReuseMethod* method = find_reuse_method(slot.method);
      const bool again = method == nullptr || slot.reused_tokens + slot.ahead_tokens == 0;
      const Kind now = again ? computed : method->exact ? exact : approximate;
      kind = kind == unused ? now : std::max(kind, now);
      if (++named > kMaxInTitle) continue;
      title += html("\n{}: {} tokens, {}, {} of the KV reused", cut(slot.name, 80), grouped(slot.tokens),
                    cut(slot.method, 50), percent(slot.kv_reuse_rate, 1));
    }
    return kind;
  }

  Markup line(const GraphEdge& one, const std::string& path,
              std::map<std::size_t, std::map<std::string, int>>& methods) {
    Markup title;
    std::map<std::string, int> found;
    const Kind kind = kind_of(one, found, title);
    for (const auto& [method, count] : found) methods[one.to][method] += count;
    kinds_.insert(kind);
    return html("<path class=\"{}\" d=\"{}\" marker-end=\"url(#arrow)\"><title>{} to {}{}</title></path>\n",
                kLines[kind].style, path, name(one.from), name(one.to), title);
  }

  const AgentRecord& turn(std::size_t place) const { return report_.run.agents[turns_[place]]; }
  std::string name(std::size_t place) const { return turn_name(turn(place)); }

  /// The methods on the lines that end at a turn, above it.
  static Markup label(const std::map<std::string, int>& methods, const GraphLayout::Place& place) {
    Markup text;
    for (const auto& [method, count] : methods)
      text += html("{}{}{}", text.empty() ? "" : ", ", cut(method, 50), count > 1 ? html(" × {}", count) : Markup());
    return html("<span class=\"methods\" style=\"left:{:.0f}px;top:{:.0f}px;width:{:.0f}px\"><span>{}</span></span>\n",
                place.x, place.y - 27, kNodeWidth, text);
  }

  Markup node(std::size_t i, const Markup& place) const {
    const AgentRecord& agent = turn(i);
    const std::string& condition = graph_.conditions[turns_[i]];
    Markup did;
    if (agent.state == TurnState::skipped) {
      did = escaped(agent.error);
    } else if (agent.prompt_tokens > 0) {
      did = html("{} → {} tokens", grouped(agent.prompt_tokens), grouped(agent.output_tokens));
    }
    if (!agent.tools.empty()) {
      did +=
          html("{}{} tool {}", did.empty() ? "" : ", ", agent.tools.size(), agent.tools.size() == 1 ? "use" : "uses");
    }
    const Markup when =
        condition.empty() ? Markup() : html("<small class=\"when\">when {}</small>", bdi(condition, 300));
    return html(
        "<a class=\"node {}\" style=\"{}\" href=\"#text-{}\" title=\"{}{}\"><span><b>{}</b>{}</span><small>{}</small>{}"
        "<small>{}</small></a>\n",
        name_of(agent.state), place, turns_[i] + 1, name(i),
        condition.empty() ? Markup() : html(", when {}", cut(condition, 300)), name(i),
        state_badge(name_of(agent.state)), bdi(agent.role == agent.agent ? "" : agent.role, 100), when, did);
  }

  Markup legend() const {
    Markup out = "<ul class=\"legend\">\n";
    for (const Kind kind : kinds_) {
      out += html("<li><svg class=\"line\" aria-hidden=\"true\"><path class=\"{}\" d=\"M0 6H24\"/></svg>{}</li>\n",
                  kLines[kind].style, kLines[kind].meaning);
    }
    return out + "</ul>\n";
  }

  const Report& report_;
  const TeamGraph& graph_;
  std::vector<std::size_t> turns_;  // that are drawn
  std::vector<GraphEdge> edges_;    // between places in turns_
  std::size_t lines_ = 0, compared_ = 0;
  bool conditions_ = false;
  std::set<Kind> kinds_;
};

}  // namespace

Markup graph_section(const Report& report) {
  Markup out = "<section id=\"team\">\n<h2>Team</h2>\n";
  if (!report.graph) return out + "<p>No picture: graph.json is missing.</p>\n</section>\n";
  if (report.run.agents.empty()) return out + "<p>The run had no turns.</p>\n</section>\n";
  return out + TeamPicture(report, *report.graph).draw() + "</section>\n";
}

}  // namespace baton::cli
