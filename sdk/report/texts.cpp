// SPDX-License-Identifier: Apache-2.0
#include "sdk/report/texts.h"

#include <fmt/format.h>

#include <algorithm>

#include "sdk/cli/console/view.h"
#include "sdk/report/page.h"

namespace baton::cli {
namespace {

constexpr std::size_t kMaxNamedTexts = 100;
constexpr std::size_t kMaxOpenAnswers = 8;  // more turns have theirs folded

Markup attribute_of(Look look) {
  if (look == Look::markdown) return " data-md";
  if (look == Look::json) return " data-code=\"json\"";
  return look == Look::python ? Markup(" data-code=\"python\"") : Markup();
}

/// When each use of a tool was, in the order of the record; empty where the events do not tell.
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
  Markup out = html("<details{}><summary>", open ? Markup(" open") : Markup());
  if (asks && is_of_calls(agent))
    out += html("Results of its calls, which took {} tokens</summary>\n", grouped(agent.output_tokens));
  else
    out +=
        asks ? html("Answer, {} tokens</summary>\n", grouped(agent.output_tokens)) : "Result of its tools</summary>\n";
  out += texts.block(agent.output, Look::markdown) + "</details>\n";
  // What the whole answer is need not be said again.
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

/// What is said below the beginning of a longer text.
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
