// SPDX-License-Identifier: Apache-2.0
// The picture of the team: its turns, who handed what to whom and how, and under which conditions. It is drawn from the
// record's graph.json.

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <baton/reuse_method.h>

#include "sdk/console/html.h"
#include "sdk/console/view.h"
#include "sdk/report/data.h"
#include "sdk/report/page.h"

namespace baton::cli {

// All in pixels.
inline constexpr double kNodeWidth = 200, kNodeGap = 18, kLayerGap = 64, kLaneWidth = 14;

struct GraphLayout {
  struct Place {
    double x = 0, y = 0;  // the upper left corner
  };
  std::vector<Place> turns;
  double width = 0, height = 0;
  std::vector<std::string> paths;  // one for each hand-over, for the attribute d
};

/// The picture of the first `turns` turns; `edges` lie between these.
GraphLayout graph_layout(std::size_t turns, const std::vector<GraphEdge>& edges, double node_height);

namespace {

std::vector<std::size_t> layers_of(std::size_t turns, const std::vector<GraphEdge>& edges) {
  std::vector<std::vector<std::size_t>> sources(turns);
  for (const GraphEdge& one : edges) sources[one.to].push_back(one.from);
  std::vector<std::size_t> layers(turns);
  for (std::size_t i = 0; i < turns; ++i) {
    for (const std::size_t from : sources[i]) layers[i] = std::max(layers[i], layers[from] + 1);
  }
  return layers;
}

/// The lane of each turn that is read below the next layer: the first that nobody else uses on the way.
std::vector<std::size_t> lanes_of(const std::vector<std::size_t>& layers, const std::vector<GraphEdge>& edges) {
  std::vector<std::size_t> ends(layers.size()), lanes(layers.size());
  for (const GraphEdge& one : edges) ends[one.from] = std::max(ends[one.from], layers[one.to]);
  std::vector<std::size_t> by_layer;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (ends[i] > layers[i] + 1) by_layer.push_back(i);
  }
  std::stable_sort(by_layer.begin(), by_layer.end(), [&](auto a, auto b) { return layers[a] < layers[b]; });
  std::vector<std::size_t> free_from;  // for each lane
  for (const std::size_t turn : by_layer) {
    const auto lane = std::find_if(free_from.begin(), free_from.end(), [&](auto end) { return end <= layers[turn]; });
    lanes[turn] = static_cast<std::size_t>(lane - free_from.begin());
    if (lane == free_from.end()) free_from.push_back(0);
    free_from[lanes[turn]] = ends[turn];
  }
  return lanes;
}

}  // namespace

GraphLayout graph_layout(std::size_t turns, const std::vector<GraphEdge>& edges, double node_height) {
  const std::vector<std::size_t> layers = layers_of(turns, edges), lanes = lanes_of(layers, edges);
  std::vector<std::size_t> sizes;
  for (const std::size_t layer : layers) {
    if (layer >= sizes.size()) sizes.resize(layer + 1);
    ++sizes[layer];
  }
  const auto row_width = [](std::size_t count) {
    return static_cast<double>(count) * (kNodeWidth + kNodeGap) - kNodeGap;
  };
  const double widest = row_width(sizes.empty() ? 1 : *std::max_element(sizes.begin(), sizes.end()));
  GraphLayout layout;
  layout.turns.resize(turns);
  layout.width = widest;
  std::vector<std::size_t> seen(sizes.size());
  for (std::size_t i = 0; i < turns; ++i) {
    const std::size_t layer = layers[i];
    layout.turns[i] = {(widest - row_width(sizes[layer])) / 2 + row_width(seen[layer] + 1) - kNodeWidth,
                       kLayerGap / 2 + static_cast<double>(layer) * (node_height + kLayerGap)};
    ++seen[layer];
  }
  layout.height = static_cast<double>(sizes.size()) * (node_height + kLayerGap) - kLayerGap / 2;
  for (const GraphEdge& one : edges) {
    const GraphLayout::Place &from = layout.turns[one.from], &to = layout.turns[one.to];
    const double x = from.x + kNodeWidth / 2, y = from.y + node_height, end = to.x + kNodeWidth / 2, tip = to.y - 1;
    if (layers[one.to] == layers[one.from] + 1) {
      layout.paths.push_back(fmt::format("M{} {}C{} {} {} {} {} {}", x, y, x, y + 32, end, tip - 32, end, tip));
      continue;
    }
    const double lane = widest + kNodeGap + static_cast<double>(lanes[one.from]) * kLaneWidth;
    layout.width = std::max(layout.width, lane + 2);
    layout.paths.push_back(fmt::format("M{0} {1}C{0} {2} {3} {4} {3} {5}V{6}C{3} {7} {8} {9} {8} {10}", x, y, y + 32,
                                       lane, y + 16, y + 48, tip - 48, tip - 16, end, tip - 32, tip));
  }
  return layout;
}

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

namespace {

/// For each turn the one whose answer its readers got: rounds that end early leave that of the last round that was.
std::vector<std::size_t> said_by(const RunRecord& run) {
  std::map<std::string_view, std::size_t> last;  // by agent
  std::vector<std::size_t> said(run.agents.size());
  for (std::size_t i = 0; i < said.size(); ++i) {
    const AgentRecord& agent = run.agents[i];
    if (agent.state != TurnState::skipped) last[agent.agent] = i;
    const auto found = last.find(agent.agent);
    said[i] = found == last.end() ? i : found->second;
  }
  return said;
}

}  // namespace

TeamGraph read_graph(const std::string& bytes, const std::string& file, const RunRecord& run) {
  const JsonDocument json = RecordFields::parse(bytes, file);
  const RecordFields fields(*json, file, "");
  if (fields.count("schema") != 1) fields.fail("schema", "1");
  TeamGraph graph;
  graph.until = fields.text("until", "");
  graph.conditions.resize(run.agents.size());
  graph.unreached.resize(run.agents.size());
  const std::vector<RecordFields> turns = fields.list("turns");
  if (turns.size() != run.agents.size()) fields.fail("turns", fmt::format("{} turns, as run.json", run.agents.size()));
  std::set<int> begun;
  std::map<std::string, std::size_t> first, last;  // an agent may work twice in a round
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const AgentRecord& agent = run.agents[i];
    if (turns[i].text("agent") != agent.agent) turns[i].fail("agent", fmt::format("'{}', as run.json", agent.agent));
    if (turns[i].count("round") != agent.round) turns[i].fail("round", fmt::format("{}, as run.json", agent.round));
    const std::string id = turns[i].text("id");
    first.emplace(id, i);
    last[id] = i;
    graph.conditions[i] = turns[i].text("when", "");
    graph.unreached[i] = agent.round > 1 && !turns[i].truth("decides", false);
    if (graph.unreached[i] && agent.state != TurnState::skipped) begun.insert(agent.round);
  }
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (begun.count(run.agents[i].round) != 0) graph.unreached[i] = false;
  }
  const std::vector<std::size_t> said = said_by(run);
  for (const RecordFields& edge : fields.list("edges")) {
    const auto from = first.find(edge.text("from")), to = last.find(edge.text("to"));
    if (from == first.end()) edge.fail("from", "the id of a turn");
    if (to == last.end()) edge.fail("to", "the id of a turn");
    if (from->second >= to->second) edge.fail("to", "a turn behind that of 'from'");
    const bool read = run.agents[to->second].state != TurnState::skipped;
    graph.edges.push_back({read ? said[from->second] : from->second, to->second, edge.texts_of("slots")});
  }
  for (const RecordFields& barrier :
       fields.is_null("barriers") ? std::vector<RecordFields>() : fields.list("barriers")) {
    std::vector<std::size_t> from, to;
    for (const std::string& id : barrier.texts_of("from")) {
      const auto found = first.find(id);
      if (found == first.end()) barrier.fail("from", "ids of turns");
      from.push_back(said[found->second]);
    }
    for (const std::string& id : barrier.texts_of("to")) {
      const auto found = last.find(id);
      if (found == last.end()) barrier.fail("to", "ids of turns");
      to.push_back(found->second);
    }
    if (from.empty() || to.empty()) barrier.fail("from", "at least one turn, as in 'to'");
    const std::size_t over = *std::max_element(from.begin(), from.end());
    if (over >= *std::min_element(to.begin(), to.end())) barrier.fail("to", "turns behind those of 'from'");
    for (const std::size_t turn : from) graph.edges.push_back({turn, to.front(), {}});  // as few as show the order
    for (const std::size_t turn : to)
      if (turn != to.front()) graph.edges.push_back({over, turn, {}});
  }
  return graph;
}

}  // namespace baton::cli
