// SPDX-License-Identifier: Apache-2.0
// Two runs next to each other: settings, inputs, times, tokens, reuse, and answers with their differences marked.
#include "sdk/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "sdk/console/view.h"

namespace baton::cli {
namespace {

constexpr std::size_t kMaxCells = 4'000'000;  // in one table, four bytes each

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c & 0x80) != 0;
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

bool begins_line(char before, char) { return before == '\n'; }
bool begins_word(char before, char now) {
  return !(in_word(before) && in_word(now)) && !(is_blank(before) && is_blank(now));
}

void add(std::vector<TextPart>& parts, std::string_view text, bool same) {
  if (text.empty()) return;
  if (!parts.empty() && parts.back().same == same) {
    parts.back().text = {parts.back().text.data(),
                         parts.back().text.size() + text.size()};  // it is the next of one text
  } else {
    parts.push_back({text, same});
  }
}

std::string_view joined(const std::vector<std::string_view>& pieces, std::size_t begin, std::size_t end) {
  if (begin == end) return {};
  return {pieces[begin].data(),
          static_cast<std::size_t>(pieces[end - 1].data() + pieces[end - 1].size() - pieces[begin].data())};
}

/// Of two lists: in how many pieces the longest common subsequence of what begins at (i, j) consists.
class CommonLengths {
 public:
  CommonLengths(const std::vector<std::string_view>& a, const std::vector<std::string_view>& b)
      : columns_(b.size() + 1), lengths_((a.size() + 1) * columns_) {
    for (std::size_t i = a.size(); i-- > 0;) {
      for (std::size_t j = b.size(); j-- > 0;) {
        at(i, j) = a[i] == b[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
      }
    }
  }
  std::uint32_t& at(std::size_t i, std::size_t j) { return lengths_[i * columns_ + j]; }

 private:
  std::size_t columns_;
  std::vector<std::uint32_t> lengths_;
};

}  // namespace

Differences::Words Differences::split(std::string_view text, Pieces begins) {
  Words pieces;
  std::size_t from = 0;
  for (std::size_t i = 1; i <= text.size(); ++i) {
    if (i < text.size() && !begins(text[i - 1], text[i])) continue;
    pieces.push_back(text.substr(from, i - from));
    from = i;
  }
  return pieces;
}

void Differences::compare(const Words& first, const Words& second, bool lines, TextDifference& out) {
  const auto left_over = [&](std::string_view a, std::string_view b) {
    if (lines && !a.empty() && !b.empty()) return compare(split(a, begins_word), split(b, begins_word), false, out);
    add(out.first, a, false);
    add(out.second, b, false);
  };
  // The common beginning and end need no table.
  const std::size_t shorter = std::min(first.size(), second.size());
  std::size_t begin = 0, end = 0;
  while (begin < shorter && first[begin] == second[begin]) ++begin;
  while (end < shorter - begin && first[first.size() - 1 - end] == second[second.size() - 1 - end]) ++end;
  add(out.first, joined(first, 0, begin), true);
  add(out.second, joined(second, 0, begin), true);
  const Words a(first.begin() + static_cast<std::ptrdiff_t>(begin), first.end() - static_cast<std::ptrdiff_t>(end));
  const Words b(second.begin() + static_cast<std::ptrdiff_t>(begin), second.end() - static_cast<std::ptrdiff_t>(end));
  const std::size_t cells = (a.size() + 1) * (b.size() + 1);
  std::size_t i = 0, j = 0;
  if (cells <= std::min(kMaxCells, cells_left_)) {
    cells_left_ -= cells;
    CommonLengths lengths(a, b);
    std::size_t from_a = 0, from_b = 0;
    while (i < a.size() && j < b.size()) {
      if (a[i] == b[j]) {
        left_over(joined(a, from_a, i), joined(b, from_b, j));
        add(out.first, a[i], true);
        add(out.second, b[j], true);
        from_a = ++i;
        from_b = ++j;
      } else if (lengths.at(i + 1, j) >= lengths.at(i, j + 1)) {
        ++i;
      } else {
        ++j;
      }
    }
    i = from_a;
    j = from_b;
  }
  left_over(joined(a, i, a.size()), joined(b, j, b.size()));
  add(out.first, joined(first, first.size() - end, first.size()), true);
  add(out.second, joined(second, second.size() - end, second.size()), true);
}

TextDifference Differences::between(std::string_view first, std::string_view second) {
  TextDifference out;
  compare(split(first, begins_line), split(second, begins_line), true, out);
  return out;
}

namespace {

struct TurnPair {
  std::string name;
  const AgentRecord *first = nullptr, *second = nullptr;  // null: the run has no such turn

  bool ran() const {
    const auto did = [](const AgentRecord* turn) { return turn != nullptr && turn->state != TurnState::skipped; };
    return did(first) || did(second);
  }
};

/// The turns of the first run in its order, then those that only the second has.
std::vector<TurnPair> pairs_of(const RunRecord& first, const RunRecord& second) {
  std::map<std::string, std::vector<const AgentRecord*>> others;
  for (const AgentRecord& turn : second.agents) others[turn_name(turn.agent, turn.round)].push_back(&turn);
  std::vector<TurnPair> pairs;
  std::map<std::string, std::size_t> seen;
  for (const AgentRecord& turn : first.agents) {
    const std::string name = turn_name(turn.agent, turn.round);
    const auto& found = others[name];
    const std::size_t index = seen[name]++;
    pairs.push_back({name, &turn, index < found.size() ? found[index] : nullptr});
  }
  for (const AgentRecord& turn : second.agents) {
    const std::string name = turn_name(turn.agent, turn.round);
    if (seen[name] > 0) {
      --seen[name];
    } else {
      pairs.push_back({name, nullptr, &turn});
    }
  }
  return pairs;
}

/// "−12 %": what the second is to the first.
Markup change(double first, double second) {
  if (first <= 0 || second == first) return "";
  const double percent = 100 * (second / first - 1);
  return percent > 999 ? html("× {:.0f}", second / first)
                       : html("{}{:.0f} %", percent < 0 ? "−" : "+", std::abs(percent));
}

class RunComparison {
 public:
  RunComparison(const Report& first, const Report& second, const std::array<std::string, 2>& names)
      : a_(first.run), b_(second.run), names_(names), pairs_(pairs_of(a_, b_)) {}

  Markup body() {
    Markup out = html("<header id=\"run\">\n<div class=\"top\"><h1>{}</h1></div>\n<dl class=\"facts\">\n",
                      bdi(a_.workflow, 200));
    for (std::size_t i = 0; i < 2; ++i) {
      const RunRecord& run = i == 0 ? a_ : b_;
      out += html("<dt>{}</dt><dd><code>{}</code> {}", letter(i), bdi(names_[i], 300), state_badge(name_of(run.state)));
      if (run.state != RunState::ok && !run.error.empty()) out += html(" {}", bdi(run.error, 1000));
      out += "</dd>\n";
    }
    out +=
        "</dl>\n<nav aria-label=\"Parts of this page\"><a href=\"#inputs\">Inputs</a> <a href=\"#sums\">Sums</a> "
        "<a href=\"#outputs\">Outputs</a> <a href=\"#turns\">Turns</a> <a "
        "href=\"#texts\">Answers</a></nav>\n</header>\n<main>\n";
    return out + named("inputs", "Inputs", a_.inputs, b_.inputs) + sums() +
           named("outputs", "Outputs", a_.outputs, b_.outputs) + turns() + answers() + "</main>\n";
  }

 private:
  static const char* letter(std::size_t run) { return run == 0 ? "A" : "B"; }

  /// Two texts, once if they are the same.
  Markup texts(std::string_view first, std::string_view second) {
    if (first == second) return texts_.block(first, Look::markdown);
    const std::string_view cut_first = cut(first, kMaxTextBytes), cut_second = cut(second, kMaxTextBytes);
    const TextDifference difference = differences_.between(cut_first, cut_second);
    return "<div class=\"pair\">\n" + side(0, difference.first, first.size(), "del") +
           side(1, difference.second, second.size(), "ins") + "</div>\n";
  }

  Markup side(std::size_t run, const std::vector<TextPart>& parts, std::size_t size, const char* tag) {
    return html("<div><p class=\"muted\">{}</p>\n", letter(run)) + texts_.marked(parts, size, tag) + "</div>\n";
  }

  Markup named(const char* id, const char* title, const NamedTexts& first, const NamedTexts& second) {
    Markup out = html("<section id=\"{}\">\n<h2>{}</h2>\n", id, title);
    const auto only = [&](const std::string& name, const std::string& text, std::size_t run) {
      out += html("<h3>{} <span class=\"muted\">of {} alone</span></h3>\n", bdi(name, 200), letter(run)) +
             texts_.block(text, Look::markdown);
    };
    for (const auto& [name, text] : first) {
      const auto other = second.find(name);
      if (other == second.end()) {
        only(name, text, 0);
      } else {
        out += html("<h3>{} <span class=\"muted\">{}</span></h3>\n", bdi(name, 200),
                    text == other->second ? "the same" : "differs");
        out += texts(text, other->second);
      }
    }
    for (const auto& [name, text] : second) {
      if (first.find(name) == first.end()) only(name, text, 1);
    }
    if (first.empty() && second.empty()) out += "<p>None.</p>\n";
    return out + "</section>\n";
  }

  Markup sums() const {
    std::vector<std::vector<Markup>> rows;
    const auto add = [&](const char* what, const auto& value_of, const auto& shown) {
      const double a = value_of(a_), b = value_of(b_);
      rows.push_back({escaped(what), shown(a), shown(b), change(a, b)});
    };
    const auto sum = [](auto member) {
      return [member](const RunRecord& run) {
        double all = 0;
        for (const AgentRecord& agent : run.agents) all += static_cast<double>(member(agent));
        return all;
      };
    };
    const auto time = [](double ms) { return escaped(duration(ms)); };
    const auto count = [](double number) { return escaped(grouped(static_cast<long long>(number))); };
    add(
        "wall time", [](const RunRecord& run) { return run.wall_ms; }, time);
    add("first tokens, all turns", sum([](const AgentRecord& one) { return one.ttft_ms; }), time);
    add("decoding, all turns", sum([](const AgentRecord& one) { return one.decode_ms; }), time);
    add("turns that ended well", sum([](const AgentRecord& one) { return one.state == TurnState::ok ? 1 : 0; }), count);
    add("prompt tokens", sum([](const AgentRecord& one) { return one.prompt_tokens; }), count);
    add("generated tokens", sum([](const AgentRecord& one) { return one.output_tokens; }), count);
    const auto entries = sum([](const AgentRecord& one) { return one.kv.entries; });
    const auto share = [&](const char* what, auto member) {
      rows.push_back({escaped(what), percent(sum(member)(a_), entries(a_)), percent(sum(member)(b_), entries(b_)), ""});
    };
    share("prompt KV reused", [](const AgentRecord& one) { return one.kv.reused; });
    share("prompt KV computed ahead", [](const AgentRecord& one) { return one.kv.ahead; });
    const auto setting = [&](const char* what, const Markup& a, const Markup& b) {
      if (a.str() != b.str()) rows.push_back({escaped(what), a, b, ""});
    };
    setting("workflow", bdi(a_.workflow, 200), bdi(b_.workflow, 200));
    setting("relay method", bdi(a_.relay, 100), bdi(b_.relay, 100));
    setting("model", bdi(a_.model_path), bdi(b_.model_path));
    setting("fingerprint", bdi(a_.model_fingerprint, 100), bdi(b_.model_fingerprint, 100));
    setting("device", bdi(a_.device, 200), bdi(b_.device, 200));
    setting("threads", html("{}", a_.threads), html("{}", b_.threads));
    setting("seed", html("{}", a_.seed), html("{}", b_.seed));
    setting("baton", bdi(a_.version, 100), bdi(b_.version, 100));
    return "<section id=\"sums\">\n<h2>Sums, and settings that differ</h2>\n" +
           table("", {{"", "", Column::text}, {"A", ""}, {"B", ""}, {"B to A", ""}}, rows) + "</section>\n";
  }

  Markup link(std::size_t pair) const {
    return pairs_[pair].ran() ? html("<a href=\"#text-{}\">{}</a>", pair + 1, pairs_[pair].name)
                              : escaped(pairs_[pair].name);
  }

  Markup turns() const {
    const std::vector<Column> columns = {
        {"turn", "", Column::name},
        {"answer", "", Column::name},
        {"state", "", Column::name},
        {"prompt", "tokens, of A and of B"},
        {"output", "tokens, of A and of B"},
        {"first token", "from the moment the last input was complete, of A and of B"},
        {"decode", "from the first token to the last, of A and of B"},
        {"KV reused", "fraction of the prompt's KV that was not computed, of A and of B"}};
    std::vector<std::vector<Markup>> rows;
    for (std::size_t i = 0; i < std::min(pairs_.size(), kMaxTurns); ++i) {
      const TurnPair& pair = pairs_[i];
      if (pair.first == nullptr || pair.second == nullptr) {
        rows.push_back(
            {link(i), pair.first != nullptr ? Markup("of A alone") : Markup("of B alone"), "", "", "", "", "", ""});
        continue;
      }
      const AgentRecord &a = *pair.first, &b = *pair.second;
      if (!pair.ran()) {
        rows.push_back({link(i), "", state_badge(name_of(a.state)), "", "", "", "", ""});
        continue;
      }
      const auto both = [](const auto& first, const auto& second) {
        return html("<span class=\"both\"><span>{}</span><span>{}</span></span>", first, second);
      };
      rows.push_back({link(i), a.output == b.output ? Markup("the same") : Markup("<b>differs</b>"),
                      a.state == b.state ? state_badge(name_of(a.state))
                                         : state_badge(name_of(a.state)) + " " + state_badge(name_of(b.state)),
                      both(grouped(a.prompt_tokens), grouped(b.prompt_tokens)),
                      both(grouped(a.output_tokens), grouped(b.output_tokens)),
                      both(duration(a.ttft_ms), duration(b.ttft_ms)),
                      both(duration(a.decode_ms), duration(b.decode_ms)),
                      both(percent(a.kv.reuse_rate, 1), percent(b.kv.reuse_rate, 1))});
    }
    Markup out = "<section id=\"turns\">\n<h2>Turns</h2>\n" + table("", columns, rows);
    if (pairs_.size() > kMaxTurns)
      out += html("<p class=\"muted\">The first {} of {} turns.</p>\n", kMaxTurns, pairs_.size());
    return out + "</section>\n";
  }

  Markup answers() {
    Markup out = "<section id=\"texts\">\n<h2>Answers</h2>\n";
    for (std::size_t i = 0; i < std::min(pairs_.size(), kMaxTurns); ++i) {
      const TurnPair& pair = pairs_[i];
      if (!pair.ran()) continue;
      const std::string first = pair.first != nullptr ? pair.first->output : "",
                        second = pair.second != nullptr ? pair.second->output : "";
      const bool same = first == second;
      out += html("<div class=\"turn\" id=\"text-{}\">\n<h3>{}</h3>\n", i + 1, pair.name);
      if (pair.first == nullptr || pair.second == nullptr)
        out += html("<p>Of {} alone.</p>\n", letter(pair.first == nullptr ? 1 : 0));
      out += html("<details{}><summary>{}</summary>\n", same ? Markup() : Markup(" open"),
                  same ? "The same answer" : "The answers differ");
      out += texts(first, second) + "</details>\n</div>\n";
    }
    return out + "</section>\n";
  }

  const RunRecord &a_, &b_;
  std::array<std::string, 2> names_;
  std::vector<TurnPair> pairs_;
  Texts texts_;
  Differences differences_;
};

}  // namespace

Markup comparison_page(const Report& first, const Report& second, const std::array<std::string, 2>& names,
                       const std::string& command) {
  return page_of(html("{}: {} and {}", cut(first.run.workflow, 200), cut(names[0], 100), cut(names[1], 100)),
                 RunComparison(first, second, names).body(), command);
}

}  // namespace baton::cli
