// SPDX-License-Identifier: Apache-2.0
// What became of the KV of each prompt: per placeholder, and of the whole run by reason.
#include <baton/reuse_method.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "sdk/console/html.h"
#include "sdk/console/view.h"
#include "sdk/report/page.h"

namespace baton::cli {
namespace {

constexpr std::size_t kMaxSlots = 4000;  // on the page
constexpr double kMinNamed = 3;          // percent of the widest prompt: a narrower part has no name below it
constexpr std::size_t kMaxReasons = 20, kMaxNames = 6;

enum Way { prefix, ahead, reused, recomputed, full };
constexpr std::size_t kWays = 5;

struct WayText {
  const char* style;
  const char* name;
  const char* meaning;
};

constexpr std::array<WayText, kWays> kWayTexts = {
    {{"prefix", "exact prefix", "copied unchanged from another prompt that begins with the same tokens"},
     {"ahead", "computed ahead",
      "computed exactly, in decode steps of other agents, before all of the prompt was known (lockstep)"},
     {"reused", "reused", "reused by an approximate method"},
     {"recomputed", "recomputed", "recomputed in some layers, as chosen by the approximate method"},
     {"full", "in full", "computed in all layers while the agent waited for its first token"}}};

using Tokens = std::array<std::int64_t, kWays>;

std::int64_t sum(const Tokens& tokens) {
  std::int64_t all = 0;
  for (const std::int64_t part : tokens) all += part;
  return all;
}

/// A trait of a method that a recorded file names; an unknown one has none.
bool has(const std::string& method, bool ReuseMethod::*trait) {
  const ReuseMethod* found = find_reuse_method(method);
  return found != nullptr && found->*trait;
}

/// The parts add up to the placeholder's tokens, whatever the record says.
Tokens tokens_of(const SlotRecord& slot) {
  Tokens tokens{};
  std::int64_t left = slot.tokens;
  const auto take = [&](Way way, std::int64_t count) {
    tokens[way] = std::clamp<std::int64_t>(count, 0, left);
    left -= tokens[way];
  };
  const bool exact = has(slot.method, &ReuseMethod::exact);
  take(exact ? prefix : reused, slot.reused_tokens);
  take(ahead, slot.ahead_tokens);
  take(exact ? full : recomputed, left);
  return tokens;
}

/// Text around the placeholders. The record counts only the whole prompt: this text is the rest.
Tokens own_text_of(const AgentRecord& agent) {
  Tokens tokens{};
  std::int64_t in_slots = 0, ahead_in_slots = 0;
  double reused_in_slots = 0;
  bool anchored = false;
  for (const SlotRecord& slot : agent.slots) {
    in_slots = std::min(agent.prompt_tokens, in_slots + slot.tokens);
    ahead_in_slots += slot.ahead_tokens;
    reused_in_slots += slot.kv_reuse_rate * static_cast<double>(slot.tokens);
    anchored = anchored || has(slot.method, &ReuseMethod::learns);
  }
  const std::int64_t own = agent.prompt_tokens - in_slots;
  if (own == 0 || agent.kv.entries == 0) return tokens;
  const double layers = static_cast<double>(agent.kv.entries) / static_cast<double>(agent.prompt_tokens);
  const auto part = [&](std::int64_t entries, double elsewhere, std::int64_t most) {
    const double count = std::round(static_cast<double>(entries) / layers - elsewhere);
    return static_cast<std::int64_t>(std::clamp(count, 0.0, static_cast<double>(most)));
  };
  // Anchors also correct the text behind a placeholder; other methods take over own text only as an exact prefix.
  const std::int64_t taken = part(agent.kv.reused, reused_in_slots, own);
  tokens[anchored ? reused : prefix] = taken;
  tokens[ahead] = part(agent.kv.ahead, static_cast<double>(ahead_in_slots), own - taken);
  tokens[full] = own - taken - tokens[ahead];
  return tokens;
}

bool has_kv(const AgentRecord& agent) { return agent.kv.entries > 0 && agent.prompt_tokens > 0; }

/// Rectangles from `begin` on, `scale` percent a token.
Markup segments(const Tokens& tokens, double begin, double scale, const Markup& what) {
  Markup out;
  for (std::size_t way = 0; way < kWays; ++way) {
    if (tokens[way] == 0) continue;
    const double width = static_cast<double>(tokens[way]) * scale;
    out += html(
        "<rect class=\"{}\" x=\"{:.3f}%\" y=\"0\" width=\"{:.3f}%\" height=\"16\"><title>{}: {} tokens "
        "{}</title></rect>",
        kWayTexts[way].style, begin, width, what, grouped(tokens[way]), kWayTexts[way].name);
    begin += width;
  }
  return out;
}

/// The prompt as a bar, and below each of its parts the name, cut where the part ends.
Markup prompt_bar(const AgentRecord& agent, double scale) {
  Markup parts, names;
  double at = 0;
  std::int64_t left = agent.prompt_tokens;
  const auto add = [&](Tokens tokens, const Markup& name) {
    if (sum(tokens) == 0 || sum(tokens) > left) return;
    left -= sum(tokens);
    const double width = static_cast<double>(sum(tokens)) * scale;
    parts += segments(tokens, at, scale, name) +
             html("<line class=\"cut\" x1=\"{0:.3f}%\" x2=\"{0:.3f}%\" y1=\"0\" y2=\"16\"/>", at);
    names += width < kMinNamed ? html("<span class=\"thin\" style=\"width:{:.3f}%\"></span>", width)
                               : html("<span style=\"width:{:.3f}%\" title=\"{}\">{}</span>", width, name, name);
    at += width;
  };
  for (std::size_t i = 0; i < agent.slots.size(); ++i) {
    add(tokens_of(agent.slots[i]), html("{} {}", i + 1, cut(agent.slots[i].name, 80)));
  }
  add(own_text_of(agent), "own text");
  return html(
             "<svg class=\"picture\" width=\"100%\" height=\"16\" role=\"img\" aria-label=\"The prompt of {}: {} "
             "tokens; "
             "the table has the numbers\">\n",
             turn_name(agent), grouped(agent.prompt_tokens)) +
         parts + "</svg>\n<div class=\"below\" aria-hidden=\"true\">" + names + "</div>\n";
}

Markup why(const SlotRecord& slot) {
  Markup out = escaped(cut(slot.reason, 500));
  const auto add = [&](const Markup& more) { out += html("{}{}", out.empty() ? "" : "; ", more); };
  if (slot.hops > 0)
    add(html("{} approximate hand-over{} before this one", grouped(slot.hops), slot.hops == 1 ? "" : "s"));
  if (slot.corrected) add("corrected by what baton-lab learn found for this placeholder");
  if (slot.anchors) {
    const SlotAnchors& anchors = *slot.anchors;
    add(html("{} anchor{}, ambiguity {:.2f}, distance {:.3g}{}", grouped(anchors.anchors),
             anchors.anchors == 1 ? "" : "s", anchors.ambiguity, anchors.distance,
             anchors.predicted_error < 0 ? "" : html(", expected error {:.3g}", anchors.predicted_error)));
  }
  return html("<bdi>{}</bdi>", out);
}

Markup name_of(const SlotRecord& slot) {
  return html("<bdi>{}{}</bdi>", cut(slot.name, 80), slot.name.size() > 80 ? "…" : "");
}

using Columns = std::array<bool, kWays>;  // true for the ways that the run has

Markup slot_table(const AgentRecord& agent, std::size_t most, const Columns& shown) {
  std::vector<Column> columns = {{"#", ""}, {"placeholder", "", Column::name}, {"tokens", ""}};
  for (std::size_t way = 0; way < kWays; ++way) {
    if (shown[way]) columns.push_back({kWayTexts[way].name, kWayTexts[way].meaning});
  }
  columns.push_back({"KV reused",
                     "fraction of the placeholder's (token, layer) entries that were not computed, and the maximum "
                     "that the method's layers allow"});
  columns.push_back({"method", "", Column::name});
  columns.push_back({"why", "", Column::text});
  std::vector<std::vector<Markup>> rows;
  const auto add = [&](const Markup& number, const Markup& name, const Tokens& tokens, const Markup& kv,
                       const Markup& method, const Markup& reason) {
    std::vector<Markup> row = {number, name, escaped(grouped(sum(tokens)))};
    for (std::size_t way = 0; way < kWays; ++way) {
      if (shown[way])
        row.push_back(tokens[way] == 0 ? "<span class=\"muted\">0</span>" : escaped(grouped(tokens[way])));
    }
    row.insert(row.end(), {kv, method, reason});
    rows.push_back(std::move(row));
  };
  for (std::size_t i = 0; i < std::min(agent.slots.size(), most); ++i) {
    const SlotRecord& slot = agent.slots[i];
    Markup kv = slot.tokens == 0 ? "" : percent(slot.kv_reuse_rate, 1);
    if (slot.tokens > 0 && slot.kv_reuse_bound > slot.kv_reuse_rate + 0.005)
      kv += html(" of {}", percent(slot.kv_reuse_bound, 1));
    add(escaped(grouped(static_cast<long long>(i + 1))), name_of(slot), tokens_of(slot), kv,
        html("<bdi>{}</bdi>", cut(slot.method, 50)), why(slot));
  }
  if (const Tokens own = own_text_of(agent); sum(own) > 0)
    add("", "own text", own, "", "", "<span class=\"muted\">around the placeholders; drawn last</span>");
  return table("", columns, rows);
}

struct Reason {
  std::int64_t tokens = 0;
  std::size_t count = 0;
  Markup where;
};

/// Why placeholders were computed in full, most tokens first.
Markup reasons_table(const Report& report) {
  std::map<std::string, Reason> by_reason;
  for (std::size_t i = 0; i < report.run.agents.size(); ++i) {
    const AgentRecord& agent = report.run.agents[i];
    if (!has_kv(agent)) continue;
    for (const SlotRecord& slot : agent.slots) {
      const std::int64_t tokens = tokens_of(slot)[full];
      if (tokens == 0) continue;
      // Mirrored placeholders also have a part that the decode steps had no room for.
      const bool late = has(slot.method, &ReuseMethod::ahead);
      Reason& reason =
          by_reason[late ? "not reached ahead: the steps of the agents before it had no room left" : slot.reason];
      reason.tokens += tokens;
      if (++reason.count <= kMaxNames && i < kMaxTurns) {
        reason.where +=
            html("{}{}: {}", reason.where.empty() ? "" : ", ", turn_link(report, i, "reuse"), name_of(slot));
      }
    }
  }
  std::vector<std::pair<std::string, Reason>> sorted(by_reason.begin(), by_reason.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.tokens > b.second.tokens; });
  if (sorted.size() > kMaxReasons) sorted.resize(kMaxReasons);
  std::vector<std::vector<Markup>> rows;
  for (const auto& [text, reason] : sorted) {
    rows.push_back(
        {escaped(grouped(reason.tokens)),
         html("<bdi>{}</bdi>", text.empty() ? std::string_view("no reason given") : cut(text, 500)),
         reason.where + (reason.count > kMaxNames
                             ? html(" and {} more", grouped(static_cast<long long>(reason.count - kMaxNames)))
                             : Markup())});
  }
  if (rows.empty()) return "";
  return table("Why placeholders were computed in full",
               {{"tokens", ""}, {"why", "", Column::text}, {"where", "", Column::text}}, rows);
}

Tokens tokens_of_all(const Report& report) {
  Tokens all{};
  for (const AgentRecord& agent : report.run.agents) {
    if (!has_kv(agent)) continue;
    const auto add = [&](const Tokens& tokens) {
      for (std::size_t way = 0; way < kWays; ++way) all[way] += tokens[way];
    };
    for (const SlotRecord& slot : agent.slots) add(tokens_of(slot));
    add(own_text_of(agent));
  }
  return all;
}

Markup totals(const Tokens& all) {
  const std::int64_t whole = sum(all);
  if (whole == 0) return "<p>No prompt was computed.</p>\n";
  Markup out = "<ul class=\"legend\">\n";
  for (std::size_t way = 0; way < kWays; ++way) {
    if (all[way] == 0) continue;
    out += html(
        "<li title=\"{}\"><svg aria-hidden=\"true\"><rect width=\"100%\" height=\"100%\" class=\"{}\"/></svg>{}: {} "
        "tokens ({})</li>\n",
        kWayTexts[way].meaning, kWayTexts[way].style, kWayTexts[way].name, grouped(all[way]),
        percent(static_cast<double>(all[way]), static_cast<double>(whole)));
  }
  out += html(
      "</ul>\n<svg class=\"picture\" width=\"100%\" height=\"16\" role=\"img\" aria-label=\"All {} tokens of all "
      "prompts\">{}</svg>\n",
      grouped(whole), segments(all, 0, 100 / static_cast<double>(whole), "all prompts"));
  if (all[reused] > 0) {
    out +=
        "<p class=\"muted\">Some methods compute reused tokens in some of the layers; \"KV reused\" counts layers "
        "too.</p>\n";
  }
  return out;
}

}  // namespace

Markup reuse_section(const Report& report) {
  const Tokens all = tokens_of_all(report);
  Columns columns{};
  for (std::size_t way = 0; way < kWays; ++way) columns[way] = all[way] > 0;
  Markup out = "<section id=\"reuse\">\n<h2>Reuse per placeholder</h2>\n" + totals(all) + reasons_table(report);
  const std::size_t shown = std::min(report.run.agents.size(), kMaxTurns);
  std::int64_t longest = 1;
  for (std::size_t i = 0; i < shown; ++i) longest = std::max(longest, report.run.agents[i].prompt_tokens);
  std::size_t slots_left = kMaxSlots;
  for (std::size_t i = 0; i < shown; ++i) {
    const AgentRecord& agent = report.run.agents[i];
    if (agent.state == TurnState::skipped) continue;
    out += html("<div class=\"turn\" id=\"reuse-{}\">\n<h3>{} <span class=\"muted\">{} prompt tokens</span></h3>\n",
                i + 1, turn_link(report, i, "text"), grouped(agent.prompt_tokens));
    if (!has_kv(agent)) {
      out += "<p class=\"muted\">The prompt of this turn was not computed.</p>\n</div>\n";
      continue;
    }
    if (slots_left == 0) {
      out +=
          html("<p class=\"muted\">Omitted: the page shows at most {} placeholders.</p>\n</div>\n", grouped(kMaxSlots));
      continue;
    }
    const std::size_t most = std::min(slots_left, agent.slots.size());
    slots_left -= most;
    out += (agent.slots.size() == most ? prompt_bar(agent, 100 / static_cast<double>(longest)) : "") +
           slot_table(agent, most, columns);
    out += "</div>\n";
  }
  return out + "</section>\n";
}

}  // namespace baton::cli
