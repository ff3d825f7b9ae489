// SPDX-License-Identifier: Apache-2.0
#include "sdk/console/view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include <baton/reuse_method.h>

#include "sdk/console/terminal.h"
#include "sdk/console/text.h"

namespace baton::cli {
namespace {

std::string safe(const std::string& text) { return printable(text, Lines::fold); }

class PlainView : public View {
 public:
  explicit PlainView(bool verbose) : verbose_(verbose) {}

  void on_event(const Event& event) override {
    std::visit([this](const auto& typed) { show(typed); }, event);
  }

 private:
  void show(const RunStarted& event) {
    note(fmt::format("{}: {} agent turn{}\n", safe(event.workflow), event.turns, event.turns == 1 ? "" : "s"));
  }
  void show(const AgentStarted& event) {
    note(fmt::format("{}: started, {} prompt tokens\n", turn_name(event.agent, event.round), event.prompt_tokens));
  }
  void show(const Prefill& event) {
    if (!verbose_) return;
    const double ahead =
        event.kv.entries > 0 ? static_cast<double>(event.kv.ahead) / static_cast<double>(event.kv.entries) : 0;
    note(fmt::format("{}: prefill {}, {:.0f} % of the KV reused, {:.0f} % computed ahead\n",
                     turn_name(event.agent, event.round), duration(event.prefill_ms), 100 * event.kv.reuse_rate,
                     100 * ahead));
  }
  void show(const Token&) {}
  void show(const ToolCalled& event) {
    if (event.tool == "ask") {
      note(fmt::format("{}: answered: {}\n", turn_name(event.agent, event.round), head(safe(event.result), 200)));
      return;
    }
    const std::string arguments = event.arguments.empty() ? "" : " " + head(safe(event.arguments), 100);
    note(fmt::format("{}: tool {}{} {} in {}{}\n", turn_name(event.agent, event.round), safe(event.tool), arguments,
                     event.ok ? "ran" : "failed", duration(event.wall_ms),
                     verbose_ || !event.ok ? ": " + head(safe(event.result), 200) : std::string()));
  }
  void show(const AgentFinished& event) {
    const AgentRecord& record = event.record;
    const std::string name = turn_name(record.agent, record.round);
    if (record.state == TurnState::ok && record.model.empty()) {
      note(fmt::format("{}: done\n", name));
    } else if (record.state == TurnState::ok) {
      const std::string thought =
          record.thinking_tokens > 0 ? fmt::format("{} tokens of thinking and ", record.thinking_tokens) : "";
      note(fmt::format("{}: done, {}{} tokens at {:.1f}/s, first after {}\n", name, thought, record.output_tokens,
                       record.tokens_per_s, duration(record.ttft_ms)));
    } else {
      note(fmt::format("{}: {}{}{}\n", name, name_of(record.state), record.error.empty() ? "" : ": ",
                       safe(record.error)));
    }
  }
  void show(const Relayed& event) {
    if (!verbose_) return;
    const ReuseMethod* method = find_reuse_method(event.slot.method);
    const bool ahead = method != nullptr && method->ahead;
    note(fmt::format("{} -> {}: {} by {}, {} of {} tokens {} ({})\n", event.from, turn_name(event.to, event.round),
                     event.slot.name, event.slot.method, ahead ? event.slot.ahead_tokens : event.slot.reused_tokens,
                     event.slot.tokens, ahead ? "ahead" : "reused", safe(event.slot.reason)));
  }
  void show(const Warning& event) { note(warning_line(event.message)); }
  void show(const Asked&) {}  // the runner itself asks
  void show(const RunFinished&) {}
  void show(const PrefillProgress& event) {
    if (!verbose_) return;
    note(fmt::format("{}: {} of {} prompt tokens\n", turn_name(event.agent, event.round), event.tokens,
                     event.prompt_tokens));
  }

  void show(const TentativeToken&) {}
  void show(const ThinkingToken&) {}
  void show(const CallBegun&) {}
  void show(const CallDecided& event) {
    note(fmt::format("{}: {} {}: {}\n", turn_name(event.agent, event.round), safe(event.tool),
                     head(safe(event.arguments), 200), head(safe(event.answer), 200)));
  }
  void show(const Confirmed& event) {
    if (!verbose_) return;
    note(fmt::format("{}: {} of {} tentative tokens confirmed\n", turn_name(event.agent, event.round), event.tokens,
                     event.tentative));
  }

  bool verbose_;
};

}  // namespace

std::unique_ptr<View> make_plain_view(bool verbose) { return std::make_unique<PlainView>(verbose); }

std::string turn_name(const std::string& agent, int round) {
  return round > 1 ? fmt::format("{}#{}", agent, round) : agent;
}

std::string turn_name(const AgentRecord& agent) {
  return agent.turn.empty() ? turn_name(agent.agent, agent.round) : agent.turn;
}

// What is shown after a run.

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

/// How much of what the turns read from placeholders was handed over approximately; empty if nothing could be.
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

/// How much longer the prompts would have taken without reuse, if the run shows how fast its models compute them.
std::string saved_text(const RunRecord& record) {
  constexpr std::int64_t kMinMeasured = 64;  // tokens; fewer say little about a rate
  struct Prefill {
    std::int64_t tokens = 0;
    double ms = 0;
  };
  std::map<std::string, Prefill> measured;  // by model: prompts that were computed in full, all of them in their turn
  for (const AgentRecord& agent : record.agents) {
    if (agent.kv.entries == 0 || agent.kv.computed != agent.kv.entries || agent.kv.ahead > 0) continue;
    measured[agent.model].tokens += agent.prompt_tokens;
    measured[agent.model].ms += agent.prefill_ms;
  }
  double tokens = 0, ms = 0;  // not computed, and what it would have taken
  for (const AgentRecord& agent : record.agents) {
    const auto model = measured.find(agent.model);
    if (agent.kv.reused == 0 || model == measured.end() || model->second.tokens < kMinMeasured) continue;
    const double not_computed = static_cast<double>(agent.kv.reused) / static_cast<double>(agent.kv.entries) *
                                static_cast<double>(agent.prompt_tokens);
    tokens += not_computed;
    ms += not_computed * model->second.ms / static_cast<double>(model->second.tokens);
  }
  if (ms <= 0) return {};
  return fmt::format(", about {} of prefill saved ({} prompt tokens not computed)", duration(ms),
                     grouped(std::llround(tokens)));
}

using Row = std::vector<std::string>;

/// The first row is the head, the first two columns are texts. Columns that do not fit into `columns` are left out, the
/// least important columns first; then names are cut.
std::string table_of(const std::vector<Row>& rows, int columns) {
  constexpr int kMinName = 8;
  static constexpr std::size_t kDroppedFirst[] = {7, 5, 6, 4, 2, 1};
  std::vector<int> widths(rows.front().size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::vector<bool> shown(widths.size(), true);
  const auto width = [&] {
    int sum = -2;
    for (std::size_t i = 0; i < widths.size(); ++i) sum += shown[i] ? widths[i] + 2 : 0;
    return sum;
  };
  for (const std::size_t column : kDroppedFirst) {
    if (width() > columns) shown[column] = false;
  }
  if (width() > columns) widths[0] = std::max(std::min(widths[0], kMinName), widths[0] - (width() - columns));
  std::string out;
  for (const Row& row : rows) {
    std::string line = padded(head(row[0], widths[0]), widths[0]);
    for (std::size_t i = 1; i < row.size(); ++i) {
      if (shown[i]) line += "  " + (i < 2 ? padded(row[i], widths[i]) : padded_left(row[i], widths[i]));
    }
    out += styled(&row == &rows.front() ? Style::dim : Style::plain, line) + "\n";
  }
  return out;
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

NamedTexts results_of(const RunRecord& record) {
  NamedTexts results = record.outputs;
  const AgentRecord* last = results.empty() && record.state == RunState::ok ? last_said(record) : nullptr;
  if (last != nullptr) results[""] = last->output;
  return results;
}

std::string answers_text(const RunRecord& record, const NamedTexts& below) {
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
    const bool repeated = std::any_of(below.begin(), below.end(), [&](const auto& shown) {
      return !agent.output.empty() && shown.second == agent.output;
    });
    std::string text = repeated ? "" : printable(agent.output, Lines::keep, !terminal_is_utf8());
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
    if (agent.thinking_tokens > 0)
      out += styled(Style::dim, fmt::format("  (thought for {} tokens)\n", grouped(agent.thinking_tokens)));
    if (repeated) out += styled(Style::dim, "  (the result below)\n");
    if (!text.empty()) out += "  ";
    for (const char c : text) {
      out += c;
      if (c == '\n') out += "  ";
    }
    out += text.empty() ? "" : "\n";
    if (agent.truncated)
      out += styled(Style::yellow, fmt::format("  cut off after {} tokens\n", grouped(agent.output_tokens)));
    if (!agent.probabilities.empty()) out += styled(Style::dim, "  " + probabilities_text(agent)) + "\n";
  }
  return out + skipped_text(record);
}

std::string summary_table(const RunRecord& record) {
  std::vector<Row> rows = {
      {"agent", "state", "prompt", "output", "first token", "tokens/s", "KV computed", "ahead", "reused"}};
  const auto kv = [](std::int64_t part, const KvRecord& of) {
    const double share = of.entries > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(of.entries) : 0.0;
    return fmt::format("{} ({:.0f} %)", grouped(part), share);
  };
  KvRecord total;
  std::int64_t prompt = 0, output = 0;
  for (const auto& agent : record.agents) {
    if (agent.state == TurnState::skipped) continue;
    const std::string state(agent.truncated ? "cut off" : name_of(agent.state));
    if (agent.model.empty()) {  // its tools alone ran
      rows.push_back({turn_name(agent.agent, agent.round), state, "", "", "", "", "", "", ""});
      continue;
    }
    prompt += agent.prompt_tokens;
    output += agent.output_tokens;
    total.entries += agent.kv.entries;
    total.computed += agent.kv.computed;
    total.reused += agent.kv.reused;
    total.ahead += agent.kv.ahead;
    total.stored_tokens += agent.kv.stored_tokens;
    rows.push_back({turn_name(agent.agent, agent.round), state, grouped(agent.prompt_tokens),
                    grouped(agent.output_tokens), duration(agent.ttft_ms), fmt::format("{:.1f}", agent.tokens_per_s),
                    kv(agent.kv.computed, agent.kv), kv(agent.kv.ahead, agent.kv), kv(agent.kv.reused, agent.kv)});
  }
  if (rows.size() > 2) {
    rows.push_back({"all", std::string(name_of(record.state)), grouped(prompt), grouped(output), "", "",
                    kv(total.computed, total), kv(total.ahead, total), kv(total.reused, total)});
  }
  std::string foot = duration(record.wall_ms) + " in all";
  if (record.load_ms > 0) foot += fmt::format(" and {} to load", duration(record.load_ms));
  if (record.measure_ms >= 100) foot += fmt::format(", {} to measure the model", duration(record.measure_ms));
  if (record.measured_turns > 0)
    foot += fmt::format(", {} of it to measure {} for auto", duration(record.measured_ms),
                        record.measured_turns == 1 ? "a turn" : fmt::format("{} turns", record.measured_turns));
  foot += fmt::format("{}, relay {}, {}", saved_text(record), record.relay, printable(record.device, Lines::fold));
  if (record.memory.kv_peak_bytes > 0) {
    foot += fmt::format(", KV cache {} at its peak", size(static_cast<double>(record.memory.kv_peak_bytes)));
  }
  if (total.stored_tokens > 0) foot += fmt::format(", {} tokens from the store", grouped(total.stored_tokens));
  const int columns = stderr_is_terminal() ? terminal_size().columns - 1 : std::numeric_limits<int>::max();
  return table_of(rows, columns) + styled(Style::dim, wrapped(foot + relayed_text(record), columns));
}

const AgentRecord* last_said(const RunRecord& record) {
  const auto last = std::find_if(record.agents.rbegin(), record.agents.rend(),
                                 [](const AgentRecord& agent) { return agent.state == TurnState::ok; });
  return last == record.agents.rend() ? nullptr : &*last;
}

namespace {

constexpr std::chrono::milliseconds kSlice(100);  // between two looks at a stop request

/// False: a stop was requested.
bool wait_for_line(const std::stop_token& stop) {
  while (std::cin.rdbuf()->in_avail() <= 0) {
    if (stop.stop_requested()) return false;
    if (wait_for_input(kSlice)) return true;
  }
  return true;
}

}  // namespace

bool can_ask() { return is_terminal(StandardStream::input) && stderr_is_terminal(); }

std::string question_text(const Asked& asked) {
  std::string text = fmt::format("{} asks: {}", asked.turn, printable(asked.question, Lines::keep));
  if (!asked.choices.empty())
    text += fmt::format(" ({})", printable(fmt::format("{}", fmt::join(asked.choices, ", ")), Lines::fold));
  return text;
}

std::optional<std::string> ask_person(const Asked& asked, const std::stop_token& stop) {
  static std::mutex one_at_a_time;  // steps that run concurrently may ask at the same time
  const std::lock_guard lock(one_at_a_time);
  if (!std::cin) return std::nullopt;  // the input has ended
  note(question_text(asked) + "\n");
  while (true) {
    note(styled(Style::bold, "> "));
    std::string line;
    if (!wait_for_line(stop) || !std::getline(std::cin, line)) return std::nullopt;
    const auto& choices = asked.choices;
    if (choices.empty() || std::find(choices.begin(), choices.end(), line) != choices.end()) return line;
    note(fmt::format("expected one of: {}\n", printable(fmt::format("{}", fmt::join(choices, ", ")), Lines::fold)));
  }
}

}  // namespace baton::cli
