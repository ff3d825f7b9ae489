// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <baton/version.h>

#include "sdk/console/html.h"
#include "sdk/console/view.h"

namespace baton::cli {
namespace {

struct Sums {
  std::int64_t prompt = 0, output = 0;
  KvRecord kv;
  std::size_t ok = 0, skipped = 0;
};

Sums sums_of(const RunRecord& run) {
  Sums sums;
  for (const AgentRecord& agent : run.agents) {
    sums.ok += agent.state == TurnState::ok ? 1 : 0;
    sums.skipped += agent.state == TurnState::skipped ? 1 : 0;
    sums.output += agent.output_tokens;
    if (agent.state != TurnState::skipped) sums.prompt += agent.prompt_tokens;
    sums.kv.entries += agent.kv.entries;
    sums.kv.reused += agent.kv.reused;
    sums.kv.ahead += agent.kv.ahead;
  }
  return sums;
}

Markup header(const Report& report, const Sums& sums) {
  const RunRecord& run = report.run;
  Markup out = html("<header id=\"run\">\n<div class=\"top\"><h1>{}</h1>{}</div>\n", bdi(run.workflow, 200),
                    state_badge(name_of(run.state)));
  if (run.state != RunState::ok && !run.error.empty()) {
    out += html("<p class=\"error\"><bdi>{}{}</bdi></p>\n", escaped(cut(run.error, 4000), Lines::keep),
                run.error_kind ? html(" ({})", name_of(*run.error_kind)) : Markup());
  }
  const auto share = [&](std::int64_t part) {
    return percent(static_cast<double>(part), static_cast<double>(sums.kv.entries));
  };
  const auto tile = [&](const char* name, const Markup& value, const Markup& more) {
    out += html("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", name, value, more);
  };
  out += "<dl class=\"tiles\">\n";
  tile("wall time", escaped(duration(run.wall_ms)), "");
  tile("turns", html("{} ok", grouped(static_cast<long long>(sums.ok))),
       html("of {}{}", grouped(static_cast<long long>(run.agents.size())),
            sums.skipped > 0 ? html(", {} skipped", grouped(static_cast<long long>(sums.skipped))) : Markup()));
  tile("prompts", escaped(grouped(sums.prompt)), "tokens");
  tile("generated", escaped(grouped(sums.output)), "tokens");
  tile("prompt KV reused", sums.kv.entries > 0 ? share(sums.kv.reused) : "–", "of all entries");
  tile("computed ahead", sums.kv.entries > 0 ? share(sums.kv.ahead) : "–", "of all entries, before the turn");
  out += "</dl>\n";
  if (!run.device_fallback.empty()) out += html("<p>The GPU was not used: {}</p>\n", bdi(run.device_fallback, 500));
  if (report.warning_count > 0) {
    out += html("<p><a href=\"#warnings\">{} {}</a></p>\n", grouped(static_cast<long long>(report.warning_count)),
                report.warning_count == 1 ? "warning" : "warnings");
  }
  return out +
         html(
             "<nav aria-label=\"Parts of this page\">{}<a href=\"#outputs\">Outputs</a> <a href=\"#team\">Team</a> "
             "<a href=\"#timeline\">Timeline</a> <a href=\"#turns\">Turns</a> <a href=\"#reuse\">Reuse</a> "
             "<a href=\"#texts\">Prompts and answers</a> <a href=\"#settings\">Settings</a></nav>\n</header>\n",
             run.inputs.empty() ? Markup() : Markup("<a href=\"#inputs\">Inputs</a> "));
}

Markup settings_section(const RunRecord& run) {
  Markup out = "<section id=\"settings\">\n<h2>Settings</h2>\n<dl class=\"facts\">\n";
  const auto fact = [&](const char* name, const Markup& value) {
    out += html("<dt>{}</dt><dd>{}</dd>\n", name, value);
  };
  fact("model", run.model_path.empty() ? "not opened" : html("<code>{}</code>", bdi(run.model_path)));
  if (!run.model_fingerprint.empty()) fact("fingerprint", html("<code>{}</code>", bdi(run.model_fingerprint, 100)));
  if (!run.device.empty()) {
    fact("device", run.threads > 0 ? html("{}, {} threads", bdi(run.device, 200), run.threads) : bdi(run.device, 200));
  }
  for (const auto& [name, engine] : run.engines) fact("engine", html("{}: {}", bdi(name, 100), bdi(engine, 300)));
  if (run.load_ms > 0) fact("model load", html("{}", duration(run.load_ms)));
  if (run.measure_ms >= 100) fact("measuring the model", html("{}, at its first use", duration(run.measure_ms)));
  if (run.measured_turns > 0)
    fact("measuring turns for auto", html("{} turns, {} of the run", run.measured_turns, duration(run.measured_ms)));
  fact("relay method", bdi(run.relay, 100));
  fact("seed", html("{}", run.seed));
  if (!run.date.empty()) fact("started", bdi(run.date, 100));
  if (!run.version.empty()) fact("baton", bdi(run.version, 100));
  return out + "</dl>\n</section>\n";
}

Markup turns_section(const Report& report, const Sums& sums) {
  const std::vector<Column> columns = {
      {"turn", "", Column::name},
      {"state", "", Column::name},
      {"prompt", "tokens"},
      {"output", "tokens"},
      {"first token", "from the moment the last input was complete to the first token, everything included"},
      {"decode", "from the first token to the last"},
      {"tokens/s", "of decode"},
      {"KV reused", "fraction of the prompt's (token, layer) entries that were not computed"},
      {"ahead", "fraction of the entries that was computed before all of the prompt was known"},
      {"attempts", ""},
      {"finished by", "eos: the model ended; stop: a stop string; length: max_tokens", Column::text}};
  std::vector<std::vector<Markup>> rows;
  const auto kv = [](std::int64_t part, const KvRecord& of) {
    return of.entries > 0 ? percent(static_cast<double>(part), static_cast<double>(of.entries)) : Markup();
  };
  const std::size_t shown = std::min(report.run.agents.size(), kMaxTurns);
  for (std::size_t i = 0; i < shown; ++i) {
    const AgentRecord& agent = report.run.agents[i];
    std::vector<Markup> row = {turn_link(report, i, "text"), state_badge(name_of(agent.state))};
    if (agent.state == TurnState::skipped) {
      row.resize(columns.size());
    } else {
      row.insert(row.end(),
                 {escaped(grouped(agent.prompt_tokens)), escaped(grouped(agent.output_tokens)),
                  agent.ttft_ms > 0 ? escaped(duration(agent.ttft_ms)) : "", escaped(duration(agent.decode_ms)),
                  html("{:.1f}", agent.tokens_per_s), kv(agent.kv.reused, agent.kv), kv(agent.kv.ahead, agent.kv),
                  escaped(grouped(agent.attempts)), bdi(name_of(agent.finish_reason))});
    }
    rows.push_back(std::move(row));
  }
  if (report.run.agents.size() > 1) {
    rows.push_back({"all", state_badge(name_of(report.run.state)), escaped(grouped(sums.prompt)),
                    escaped(grouped(sums.output)), "", "", "", kv(sums.kv.reused, sums.kv), kv(sums.kv.ahead, sums.kv),
                    "", ""});
  }
  Markup out = "<section id=\"turns\">\n<h2>Turns</h2>\n" + table("", columns, rows);
  if (report.run.agents.size() > shown) {
    out += html("<p class=\"muted\">The page shows the first {} of {} turns; sums are of all.</p>\n", shown,
                grouped(static_cast<long long>(report.run.agents.size())));
  }
  return out + "</section>\n";
}

Markup memory_section(const MemoryRecord& memory) {
  std::vector<std::vector<Markup>> rows;
  const auto add = [&](const char* name, std::int64_t bytes) {
    rows.push_back({escaped(name), escaped(size(static_cast<double>(bytes)))});
  };
  add("weights", memory.weights_bytes);
  add("KV cache of running prompts, peak", memory.kv_peak_bytes);
  add("KV segments kept for later prompts, peak", memory.segments_peak_bytes);
  if (memory.host_segments_peak_bytes > 0) add("segments in host memory, peak", memory.host_segments_peak_bytes);
  if (memory.method_bytes > 0) add("anchors, at the end of the run", memory.method_bytes);
  return Markup("<section id=\"memory\">\n<h2>Memory</h2>\n") +
         table("", {{"what", "", Column::text}, {"size", ""}}, rows) + "</section>\n";
}

Markup warnings_section(const Report& report) {
  if (report.warning_count == 0) return "";
  Markup out = "<section id=\"warnings\">\n<h2>Warnings</h2>\n<ul class=\"found\">\n";
  for (const std::string& warning : report.warnings) out += html("<li>{}</li>\n", bdi(warning, 1000));
  out += "</ul>\n";
  if (report.warning_count > report.warnings.size()) {
    out += html("<p class=\"muted\">The first {} of {}; the others are in events.ndjson.</p>\n", report.warnings.size(),
                grouped(static_cast<long long>(report.warning_count)));
  }
  return out + "</section>\n";
}

}  // namespace

Markup bdi(std::string_view text, std::size_t most) {
  const std::string_view start = cut(text, most);
  return html("<bdi>{}{}</bdi>", start, start.size() < text.size() ? "…" : "");
}

Markup turn_link(const Report& report, std::size_t turn, const char* place) {
  const AgentRecord& agent = report.run.agents[turn];
  const std::string name = turn_name(agent);
  const bool there = turn < kMaxTurns && !(agent.state == TurnState::skipped && std::string_view(place) == "reuse");
  return there ? html("<a href=\"#{}-{}\">{}</a>", place, turn + 1, name) : escaped(name);
}

Markup state_badge(std::string_view state) {
  const char* const sign = state == "ok" ? "✓" : state == "skipped" ? "–" : state == "cancelled" ? "■" : "✕";
  return html("<span class=\"state {0}\">{1} {0}</span>", state, sign);
}

Markup percent(double part, double of) {
  const double share = of > 0 ? std::clamp(part / of, 0.0, 1.0) * 100 : 0.0;
  if (share > 0 && share < 1) return "&lt;1 %";
  return html("{:.0f} %", share > 99 && share < 100 ? 99.0 : share);
}

Markup table(const Markup& caption, const std::vector<Column>& columns, const std::vector<std::vector<Markup>>& rows) {
  static const Markup cells[] = {"<td class=\"n\">", "<td class=\"w\">", "<td class=\"t\">"};
  Markup out = "<div class=\"scroll\"><table>\n";
  if (!caption.empty()) out += html("<caption>{}</caption>\n", caption);
  out += "<thead><tr>";
  for (const Column& column : columns) {
    out += html("<th scope=\"col\"{}{}>{}</th>", column.kind == Column::number ? Markup(" class=\"n\"") : Markup(),
                *column.meaning == '\0' ? Markup() : html(" title=\"{}\"", column.meaning), column.title);
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : rows) {
    out += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) out += cells[columns[i].kind] + row[i] + "</td>";
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table></div>\n";
}

Markup page_of(const Markup& title, const Markup& body, const std::string& command) {
  return Markup::trusted(kPageStart) +
         html(
             "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
             "script-src {}; base-uri 'none'; form-action 'none'\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"generator\" "
             "content=\"baton {}\">\n<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}",
             script_policy(), version(), title, page_style(), page_start()) +
         body +
         html(
             "<footer>\n<p>Made by Baton {} from records of <code>baton run --record</code>. Again: "
             "<code>{}</code></p>\n"
             "</footer>\n<script>{}</script>\n</body>\n</html>\n",
             version(), command, page_script());
}

Markup report_page(const Report& report, const std::string& command) {
  const RunRecord& run = report.run;
  const Sums sums = sums_of(run);
  Texts texts;
  Markup body = header(report, sums) + "<main>\n" + named_texts("inputs", "Inputs", run.inputs, Look::plain, texts);
  body += run.outputs.empty()
              ? "<section id=\"outputs\">\n<h2>Outputs</h2>\n<p>The run has no outputs.</p>\n</section>\n"
              : named_texts("outputs", "Outputs", run.outputs, Look::markdown, texts);
  body += graph_section(report) + timeline_section(report) + turns_section(report, sums) + reuse_section(report);
  body += texts_section(report, texts) + settings_section(run) + memory_section(run.memory) + warnings_section(report);
  return page_of(html("{}: {}", cut(run.workflow, 200), name_of(run.state)), body + "</main>\n", command);
}

namespace {

constexpr std::size_t kMaxNamedTexts = 100;
constexpr std::size_t kMaxOpenAnswers = 8;  // more turns have theirs folded

Markup attribute_of(Look look) {
  if (look == Look::markdown) return " data-md";
  if (look == Look::json) return " data-code=\"json\"";
  return look == Look::python ? Markup(" data-code=\"python\"") : Markup();
}

/// When each use of a tool was, in the order of the record; empty if the events do not tell.
std::vector<ToolMarks> marks_of(const TurnMarks& turn, std::size_t uses) {
  std::vector<ToolMarks> all = turn.tools, last = turn.tools;
  for (std::size_t i = 0; i < turn.attempts.size(); ++i) {
    for (const ModelCallMarks& call : turn.attempts[i]) {
      all.insert(all.end(), call.tools.begin(), call.tools.end());
      if (i + 1 == turn.attempts.size()) last.insert(last.end(), call.tools.begin(), call.tools.end());
    }
  }
  if (all.size() == uses) return all;
  return last.size() == uses ? last : std::vector<ToolMarks>();
}

/// A use of a tool within the time of its turn, in words and as a strip.
Markup when(const ToolMarks& use, const TurnTime& turn) {
  const double begin = turn.begin_ms(), length = turn.end_ms() - begin;
  if (length <= 0 || use.begin_ms < begin) return "";
  const auto at = [&](double ms) { return 100 * std::clamp((ms - begin) / length, 0.0, 1.0); };
  return html(
      "<p class=\"muted\">from {} to {} of the turn's {}</p>\n<svg class=\"strip\" width=\"100%\" height=\"8\" "
      "aria-hidden=\"true\"><rect class=\"rest\" width=\"100%\" y=\"3\" height=\"2\"/><rect class=\"tool\" "
      "x=\"{:.2f}%\" "
      "width=\"{:.2f}%\" height=\"8\"/></svg>\n",
      duration(use.begin_ms - begin), duration(use.end_ms - begin), duration(length), at(use.begin_ms),
      std::max(at(use.end_ms) - at(use.begin_ms), 0.3));
}

/// Each use of a tool: what it was given, what it ran, what it returned, and when.
Markup tools_of(const Report& report, std::size_t turn, Texts& texts) {
  const AgentRecord& agent = report.run.agents[turn];
  if (agent.tools.empty()) return "";
  const std::size_t uses = agent.tools.size(), shown = std::min(uses, kMaxCalls);
  const std::vector<ToolMarks> marks = report.no_times.empty() && turn < report.marks.size()
                                           ? marks_of(report.marks[turn], uses)
                                           : std::vector<ToolMarks>();
  Markup out = html("<details open><summary>Tools, {} {}</summary>\n", uses, uses == 1 ? "use" : "uses");
  const auto text = [&](const char* what, const std::string& content, Look look) {
    if (!content.empty()) out += html("<p class=\"muted\">{}</p>\n", what) + texts.block(content, look);
  };
  for (std::size_t i = 0; i < shown; ++i) {
    const ToolUse& use = agent.tools[i];
    out += html(
        "<details class=\"call\"><summary><b>{}</b> {} <span class=\"muted\">{}{} <code>{}</code></span></summary>\n",
        bdi(use.tool.empty() ? "unreadable call" : use.tool, 200), use.ok ? Markup() : state_badge("failed"),
        use.generation > 0 ? html("in output {}, ", use.generation) : Markup(), duration(use.wall_ms),
        bdi(use.arguments, 80));
    if (!marks.empty()) out += when(marks[i], report.times[turn]);
    text("arguments", use.arguments, Look::json);
    text("code", use.code, Look::python);
    text("result", use.result, Look::plain);
    out += "</details>\n";
  }
  if (uses > shown) out += html("<p class=\"muted\">The first {} of {}.</p>\n", shown, uses);
  return out + "</details>\n";
}

Markup prompt_of(const Report& report, std::size_t turn, const std::string& name, Texts& texts) {
  const auto& prompt = report.prompts[turn];
  return html("<details><summary>Prompt, {} tokens</summary>\n", grouped(report.run.agents[turn].prompt_tokens)) +
         (prompt ? texts.block(prompt->bytes, prompt->size, fmt::format("prompts/{}.txt", name), Look::plain)
                 : "<p class=\"muted\">The prompt is not in the record.</p>\n") +
         "</details>\n";
}

/// Whether the output is what the model's last calls returned (`direct`), and not what it wrote.
bool is_of_calls(const AgentRecord& agent) {
  if (agent.tools.empty() || agent.tools.back().generation == 0) return false;
  std::string results;
  for (const ToolUse& use : agent.tools) {
    if (use.generation == agent.tools.back().generation) results += (results.empty() ? "" : "\n") + use.result;
  }
  return results == agent.output;
}

Markup answer_of(const AgentRecord& agent, bool asks, bool open, Texts& texts) {
  Markup out;
  if (agent.thinking_tokens > 0)
    out += html("<details><summary>Thinking, {} tokens</summary>\n", grouped(agent.thinking_tokens)) +
           texts.block(agent.thinking, Look::plain) + "</details>\n";
  out += html("<details{}><summary>", open ? Markup(" open") : Markup());
  if (asks && is_of_calls(agent))
    out += html("Results of its calls, which took {} tokens</summary>\n", grouped(agent.output_tokens));
  else
    out +=
        asks ? html("Answer, {} tokens</summary>\n", grouped(agent.output_tokens)) : "Result of its tools</summary>\n";
  out += texts.block(agent.output, Look::markdown) + "</details>\n";
  // An answer that is the whole output is not shown again.
  if (!agent.answer.empty() && agent.answer != agent.output)
    out += html("<p><span class=\"muted\">found in it:</span> {}</p>\n", bdi(agent.answer));
  if (!agent.probabilities.empty())
    out += html("<p><span class=\"muted\">probabilities:</span> {}</p>\n", bdi(probabilities_text(agent)));
  return out;
}

}  // namespace

Markup Texts::block(std::string_view bytes, std::uint64_t size, const std::string& elsewhere, Look look) {
  if (size == 0) return "<p class=\"muted\">Empty.</p>\n";
  const std::string_view start = cut(bytes, std::min(kMaxTextBytes, room_));
  room_ -= start.size();
  Markup out;
  if (!start.empty()) {
    out = html("<div class=\"text\"{}><pre dir=\"auto\">{}</pre></div>\n", attribute_of(look),
               escaped(start, Lines::keep));
  }
  return out + rest(start.size(), size, elsewhere);
}

Markup Texts::marked(const std::vector<TextPart>& parts, std::uint64_t size, const char* tag) {
  if (size == 0) return "<p class=\"muted\">Empty.</p>\n";
  Markup out = "<div class=\"text\"><pre dir=\"auto\">";
  std::size_t shown = 0;
  for (const TextPart& part : parts) {
    const std::string_view text = cut(part.text, room_);
    room_ -= text.size();
    shown += text.size();
    out += part.same ? escaped(text, Lines::keep) : html("<{0}>{1}</{0}>", tag, escaped(text, Lines::keep));
  }
  return out + "</pre></div>\n" + rest(shown, size, "run.json");
}

/// Returns the note below the beginning of a longer text.
Markup Texts::rest(std::size_t shown, std::uint64_t size, const std::string& elsewhere) {
  if (shown >= size) return "";
  return html(
      "<p class=\"muted\">{} of {} bytes; a page shows at most {} of one text and {} in total. The whole text is in "
      "{}.</p>\n",
      grouped(static_cast<long long>(shown)), grouped(static_cast<long long>(size)), cli::size(kMaxTextBytes),
      cli::size(kMaxAllTextsBytes), elsewhere);
}

Markup named_texts(const char* id, const char* title, const NamedTexts& named, Look look, Texts& texts) {
  if (named.empty()) return "";
  Markup out = html("<section id=\"{}\">\n<h2>{}</h2>\n", id, title);
  std::size_t left = kMaxNamedTexts;
  for (const auto& [name, text] : named) {
    if (left-- == 0) {
      out += html("<p class=\"muted\">The first {} of {}.</p>\n", kMaxNamedTexts, named.size());
      break;
    }
    out += html("<h3>{}</h3>\n", bdi(name, 200)) + texts.block(text, look);
  }
  return out + "</section>\n";
}

Markup texts_section(const Report& report, Texts& texts) {
  const auto& agents = report.run.agents;
  const bool several = std::any_of(agents.begin(), agents.end(), [&](const auto& agent) {
    return !agent.model.empty() && agent.model != agents.front().model;
  });
  const auto skipped =
      std::count_if(agents.begin(), agents.end(), [](const auto& agent) { return agent.state == TurnState::skipped; });
  const bool open = agents.size() - static_cast<std::size_t>(skipped) <= kMaxOpenAnswers;
  Markup out = "<section id=\"texts\">\n<h2>Prompts and answers</h2>\n";
  for (std::size_t i = 0; i < report.prompts.size(); ++i) {
    const AgentRecord& agent = agents[i];
    const std::string name = turn_name(agent);
    out += html("<div class=\"turn\" id=\"text-{}\">\n<h3>{}", i + 1, name);
    if (!agent.role.empty() && agent.role != agent.agent)
      out += html(" <span class=\"muted\">{}</span>", bdi(agent.role, 200));
    const bool asks = !agent.model.empty() || agent.prompt_tokens > 0;  // else its tools alone ran
    if (several && asks) out += html(" <span class=\"muted\">model {}</span>", bdi(agent.model, 200));
    out += html(" {}</h3>\n", agent.state == TurnState::ok ? "" : state_badge(name_of(agent.state)));
    if (!agent.error.empty()) out += html("<p>{}</p>\n", bdi(agent.error, 2000));
    const bool ran = agent.state != TurnState::skipped;
    if (ran && asks) out += prompt_of(report, i, name, texts);
    out += tools_of(report, i, texts);
    if (ran) out += answer_of(agent, asks, open, texts);
    out += "</div>\n";
  }
  return out + "</section>\n";
}

}  // namespace baton::cli
