// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include <baton/version.h>

#include "sdk/cli/console/html.h"
#include "sdk/cli/console/view.h"

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
  if (run.load_ms > 0) fact("model load", html("{}", duration(run.load_ms)));
  if (run.measure_ms >= 100) fact("measuring the model", html("{}, at its first use", duration(run.measure_ms)));
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
  if (memory.anchors_bytes > 0) add("anchors, at the end of the run", memory.anchors_bytes);
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

}  // namespace baton::cli
