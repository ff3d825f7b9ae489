// SPDX-License-Identifier: Apache-2.0
// What is shown after a run.
#include <baton/reuse_method.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"

namespace baton::cli {
namespace {

Style style_of(const AgentRecord& agent) {
  return agent.state == TurnState::ok ? Style::green : agent.state == TurnState::failed ? Style::red : Style::yellow;
}

/// The turns that were skipped, by reason: a debate that ends early skips many.
std::string skipped_text(const RunRecord& record) {
  std::map<std::string, std::string> turns;
  for (const auto& agent : record.agents) {
    if (agent.state != TurnState::skipped) continue;
    std::string& names = turns[printable(agent.error, Lines::fold)];
    names += (names.empty() ? "" : ", ") + turn_name(agent.agent, agent.round);
  }
  std::string out;
  for (const auto& [reason, names] : turns) {
    out += styled(Style::dim, fmt::format("skipped: {}{}", names, reason.empty() ? "" : " (" + reason + ")")) + "\n";
  }
  return out;
}

/// How much of what the turns read from placeholders was handed over approximately; empty where nothing could be.
std::string relayed_text(const RunRecord& record) {
  std::int64_t tokens = 0, relayed = 0;
  for (const auto& agent : record.agents) {
    for (const auto& slot : agent.slots) {
      const ReuseMethod* method = find_reuse_method(slot.method);
      tokens += slot.tokens;
      if (method != nullptr && method->segments) relayed += slot.tokens;
    }
  }
  if (relayed == 0) return {};
  return fmt::format(", {:.0f} % of the placeholders' tokens relayed",
                     100.0 * static_cast<double>(relayed) / static_cast<double>(tokens));
}

}  // namespace

std::string probabilities_text(const AgentRecord& agent) {
  constexpr std::size_t kMaxShown = 8;
  auto sorted = agent.probabilities;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string out;
  for (std::size_t i = 0; i < std::min(sorted.size(), kMaxShown); ++i)
    out += fmt::format("{}{} {:.1f} %", i == 0 ? "" : ", ", printable(sorted[i].first, Lines::fold),
                       100.0 * sorted[i].second);
  if (sorted.size() > kMaxShown) out += fmt::format(", and {} more", sorted.size() - kMaxShown);
  return out;
}

std::string answers_text(const RunRecord& record) {
  std::string out;
  for (const auto& agent : record.agents) {
    if (agent.state == TurnState::skipped) continue;
    const std::string role = printable(agent.role, Lines::fold);
    out += styled(style_of(agent), "* ") + styled(Style::bold, turn_name(agent.agent, agent.round));
    if (!role.empty() && role != agent.agent) out += styled(Style::dim, "  " + role);
    if (agent.state != TurnState::ok) {
      out += styled(style_of(agent), fmt::format("  {}", name_of(agent.state)));
      if (!agent.error.empty()) out += ": " + printable(agent.error, Lines::fold);
    }
    out += '\n';
    std::string text = printable(agent.output, Lines::keep, !terminal_is_utf8());
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    if (!text.empty()) out += "  ";
    for (const char c : text) {
      out += c;
      if (c == '\n') out += "  ";
    }
    out += text.empty() ? "" : "\n";
    if (!agent.probabilities.empty()) out += styled(Style::dim, "  " + probabilities_text(agent)) + "\n";
  }
  return out + skipped_text(record);
}

std::string summary_table(const RunRecord& record) {
  std::vector<std::vector<std::string>> rows = {
      {"agent", "state", "prompt", "output", "first token", "tokens/s", "KV computed", "ahead", "reused"}};
  const auto kv = [](std::int64_t part, const KvRecord& of) {
    const double share = of.entries > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(of.entries) : 0.0;
    return fmt::format("{} ({:.0f} %)", grouped(part), share);
  };
  KvRecord total;
  std::int64_t prompt = 0, output = 0;
  for (const auto& agent : record.agents) {
    if (agent.state == TurnState::skipped) continue;
    if (agent.model.empty()) {  // its tools alone ran
      rows.push_back(
          {turn_name(agent.agent, agent.round), std::string(name_of(agent.state)), "", "", "", "", "", "", ""});
      continue;
    }
    prompt += agent.prompt_tokens;
    output += agent.output_tokens;
    total.entries += agent.kv.entries;
    total.computed += agent.kv.computed;
    total.reused += agent.kv.reused;
    total.ahead += agent.kv.ahead;
    rows.push_back({turn_name(agent.agent, agent.round), std::string(name_of(agent.state)),
                    grouped(agent.prompt_tokens), grouped(agent.output_tokens), duration(agent.ttft_ms),
                    fmt::format("{:.1f}", agent.tokens_per_s), kv(agent.kv.computed, agent.kv),
                    kv(agent.kv.ahead, agent.kv), kv(agent.kv.reused, agent.kv)});
  }
  if (rows.size() > 2) {
    rows.push_back({"all", std::string(name_of(record.state)), grouped(prompt), grouped(output), "", "",
                    kv(total.computed, total), kv(total.ahead, total), kv(total.reused, total)});
  }
  std::vector<int> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      line += (i == 0 ? "" : "  ") + (i < 2 ? padded(rows[r][i], widths[i]) : padded_left(rows[r][i], widths[i]));
    }
    out += styled(r == 0 ? Style::dim : Style::plain, line) + "\n";
  }
  std::string foot = fmt::format("{} in all, relay {}, {}", duration(record.wall_ms), record.relay,
                                 printable(record.device, Lines::fold));
  if (record.memory.kv_peak_bytes > 0) {
    foot += fmt::format(", KV cache {} at its peak", size(static_cast<double>(record.memory.kv_peak_bytes)));
  }
  return out + styled(Style::dim, foot + relayed_text(record)) + "\n";
}

const AgentRecord* last_said(const RunRecord& record) {
  const auto last = std::find_if(record.agents.rbegin(), record.agents.rend(),
                                 [](const AgentRecord& agent) { return agent.state == TurnState::ok; });
  return last == record.agents.rend() ? nullptr : &*last;
}

}  // namespace baton::cli
