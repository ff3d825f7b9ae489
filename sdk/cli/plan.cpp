// SPDX-License-Identifier: Apache-2.0
// baton check --plan: what a run would do: its size, what is wrong with it, the expanded graph, each prompt's segments,
// how each placeholder is handed over and why, and how much KV cache the run needs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include <baton/baton.h>
#include <baton/preview.h>
#include <baton/turns.h>

#include "sdk/cli/plan.h"
#include "sdk/console/options.h"
#include "sdk/console/terminal.h"
#include "sdk/console/text.h"
#include "sdk/console/view.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* name_of(SlotInfo::Source source) {
  switch (source) {
    case SlotInfo::Source::input:
      return "input";
    case SlotInfo::Source::agent_output:
      return "agent";
    case SlotInfo::Source::agent_answer:
      return "answer";
    case SlotInfo::Source::tool_result:
      return "tool";
    case SlotInfo::Source::empty:
      break;
  }
  return "empty";
}

/// What is printed, and how wide it may be: on a terminal the window, elsewhere what a line of a document has.
class PlanText {
 public:
  explicit PlanText(bool ids) : ids_(ids), columns_(stdout_is_terminal() ? terminal_size().columns - 1 : 120) {}

  const std::string& text() const { return out_; }

  void add(Style style, const std::string& text) { out_ += coloured(style, text); }

  /// "warning: ..." or "hint: ...", in lines that fit.
  void advice(Style style, const std::string& kind, const std::string& text) {
    add(style, kind);
    add(Style::plain, ": " + wrapped(text, columns_, static_cast<int>(kind.size()) + 2));
  }

  void part(const PreviewPart& part) {
    std::string count = part.known             ? fmt::format("{} tokens", part.tokens.size())
                        : part.most_tokens > 0 ? fmt::format("<= {} tokens", part.most_tokens)
                                               : std::string("? tokens");
    const std::string name =
        "    " + padded(part.slot.empty() ? "text" : part.slot, name_width()) + padded_left(count, 14);
    add(part.slot.empty() ? Style::plain : Style::cyan, name);
    const int room = columns_ - display_width(name) - 2;
    if (!part.text.empty() && room >= 8) {
      const std::string text =
          OrderedJson(printable(part.text, Lines::keep)).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
      add(Style::dim, "  " + (display_width(text) > room ? head(text, room - 3) + "..." : text));
    }
    out_ += '\n';
    if (ids_ && !part.tokens.empty()) add(Style::dim, fmt::format("      {}\n", fmt::join(part.tokens, " ")));
  }

  void slot(const SlotInfo& slot, const std::vector<TurnInfo>& turns) {
    const std::string from =
        slot.turn < 0 ? name_of(slot.source) : fmt::format("{} {}", name_of(slot.source), names_of({slot.turn}, turns));
    const std::string name = "    " + padded(slot.name, name_width()) + " ";
    const std::string origin = padded("from " + from, 23) + " ", method = padded(slot.method, 11) + " ";
    const bool fits = display_width(name + origin + method + slot.reason) <= columns_;
    add(Style::cyan, name);
    add(Style::plain, origin + (fits ? method : slot.method));
    add(Style::dim, fits ? slot.reason + "\n" : "\n      " + wrapped(slot.reason, columns_, 6));
  }

 private:
  int name_width() const { return columns_ < 80 ? 20 : 27; }

  bool ids_;
  int columns_;
  std::string out_;
};

bool is_unbounded(const TurnPreview& turn) {
  return std::any_of(turn.prompt.begin(), turn.prompt.end(),
                     [](const PreviewPart& part) { return !part.known && part.most_tokens == 0; });
}

/// "2 turns of 2 agents; at most 270 prompt tokens and 400 output tokens, 1.1 MiB of KV cache at once".
std::string summary_of(const Workflow& workflow, const std::optional<Preview>& preview) {
  const auto counted = [](std::size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("{}: {} of {}", workflow.name(), counted(workflow.turns().size(), "turn"),
                                 counted(workflow.agents().size(), "agent"));
  if (!preview) return text;
  std::int64_t prompt = 0, output = 0;
  bool unbounded = false;
  for (const TurnPreview& turn : preview->turns) {
    prompt += turn.prompt_tokens;
    output += turn.output_tokens;
    unbounded = unbounded || is_unbounded(turn);
  }
  return text + fmt::format("; at most {} prompt tokens{} and {} output tokens, {} of KV cache at once",
                            grouped(prompt), unbounded ? ", without texts that have no bound," : "", grouped(output),
                            size(static_cast<double>(preview->kv_peak_bytes)));
}

OrderedJson json_of(const RunEstimate& estimate) {
  OrderedJson rates = OrderedJson::array(), turns = OrderedJson::array();
  for (const SpeedOfModel& one : estimate.rates) {
    OrderedJson steps = OrderedJson::array();
    for (const auto& [sequences, ms] : one.step_ms) steps.push_back({{"sequences", sequences}, {"ms", ms}});
    rates.push_back({{"model", one.model},
                     {"device", one.device},
                     {"threads", one.threads},
                     {"prefill_tokens_per_s", one.prefill_tokens_per_s},
                     {"decode_steps", std::move(steps)}});
  }
  for (const TurnEstimate& one : estimate.turns) {
    turns.push_back(one.known ? OrderedJson{{"prompt_ms", one.prompt_ms},
                                            {"least_prompt_ms", one.least_prompt_ms},
                                            {"answer_ms", one.answer_ms},
                                            {"handed_over", one.handed_over}}
                              : OrderedJson());
  }
  return {{"total_ms", estimate.total_ms},
          {"least_total_ms", estimate.least_total_ms},
          {"whole", estimate.whole},
          {"turns", std::move(turns)},
          {"rates", std::move(rates)}};
}

void add_turn(PlanText& out, const TurnInfo& turn, const TurnPreview* shown, const TurnEstimate* time,
              const std::vector<TurnInfo>& turns) {
  out.add(Style::bold, turn_name(turn.agent, turn.round));
  if (!turn.role.empty() && turn.role != turn.agent) out.add(Style::plain, "  " + turn.role);
  out.add(Style::plain, turn.decides ? "  (decides)\n" : "\n");
  out.add(Style::plain, fmt::format("  after    {}\n", turn.needs.empty() ? "nothing" : names_of(turn.needs, turns)));
  if (!turn.tools.empty()) out.add(Style::plain, fmt::format("  tools    {}\n", fmt::join(turn.tools, ", ")));
  if (!turn.calls.empty()) out.add(Style::plain, fmt::format("  calls    {}\n", fmt::join(turn.calls, ", ")));
  if (turn.tools_answer)
    out.add(Style::plain, turn.asks            ? "  output   the answer to its question\n"
                          : turn.calls.empty() ? "  output   what the tools return\n"
                                               : "  output   what the called tools return\n");
  if (turn.model.empty()) {
  } else if (shown != nullptr) {
    out.add(Style::plain, "  prompt\n");
    for (const auto& part : shown->prompt) out.part(part);
    out.add(Style::plain, fmt::format("  at most  {} prompt tokens{} + {} output tokens, {} of KV cache\n",
                                      shown->prompt_tokens, is_unbounded(*shown) ? " and parts without a bound" : "",
                                      shown->output_tokens, size(static_cast<double>(shown->kv_bytes))));
  } else {
    out.add(Style::plain, fmt::format("  at most  {} output tokens\n", turn.max_tokens));
  }
  if (time != nullptr && !turn.model.empty()) out.add(Style::plain, fmt::format("  time     {}\n", time_of(*time)));
  if (!turn.order.empty()) out.add(Style::plain, fmt::format("  order    {}\n", turn.order));
  if (!turn.slots.empty()) out.add(Style::plain, turn.model.empty() ? "  reads\n" : "  relay\n");
  for (const auto& slot : turn.slots) out.slot(slot, turns);
  out.add(Style::plain, "\n");
}

std::string text_of(const Workflow& workflow, const std::optional<Preview>& preview,
                    const std::optional<RunEstimate>& times, const std::map<std::string, std::string>& inputs,
                    bool ids) {
  const auto turns = workflow.turns();
  PlanText out(ids);
  out.add(Style::bold, summary_of(workflow, preview) + "\n");
  if (times) out.advice(Style::bold, "estimate", estimate_text(*times));
  for (const std::string& text : plan_warnings(workflow, preview, inputs)) out.advice(Style::yellow, "warning", text);
  for (const std::string& text : plan_hints(workflow, preview)) out.advice(Style::green, "hint", text);
  out.add(Style::plain, "\n" + workflow.graph("ascii") + "\n");
  for (std::size_t i = 0; i < turns.size(); ++i) {
    add_turn(out, turns[i], preview ? &preview->turns[i] : nullptr, times ? &times->turns[i] : nullptr, turns);
  }
  if (preview) {
    std::string memory = fmt::format("memory: {} of KV cache per token; at most {} at once",
                                     size(static_cast<double>(preview->kv_bytes_per_token)),
                                     size(static_cast<double>(preview->kv_peak_bytes)));
    if (preview->kv_ahead_bytes > 0)
      memory += fmt::format(", and {} for prompts computed ahead, if memory allows",
                            size(static_cast<double>(preview->kv_ahead_bytes)));
    out.add(Style::plain, memory + "\n");
  }
  return out.text();
}

OrderedJson json_of(const Workflow& workflow, const std::optional<Preview>& preview,
                    const std::optional<RunEstimate>& times, const std::map<std::string, std::string>& inputs) {
  const auto turns = workflow.turns();
  OrderedJson list = OrderedJson::array();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const TurnInfo& turn = turns[i];
    OrderedJson slots = OrderedJson::array();
    for (const auto& slot : turn.slots) {
      slots.push_back({{"name", slot.name},
                       {"source", name_of(slot.source)},
                       {"turn", slot.turn},
                       {"method", slot.method},
                       {"reason", slot.reason}});
    }
    OrderedJson one = {
        {"agent", turn.agent},       {"role", turn.role},   {"round", turn.round},     {"needs", turn.needs},
        {"tools", turn.tools},       {"model", turn.model}, {"decides", turn.decides}, {"max_tokens", turn.max_tokens},
        {"slots", std::move(slots)}, {"order", turn.order}, {"calls", turn.calls}};
    if (preview) {
      OrderedJson parts = OrderedJson::array();
      for (const auto& part : preview->turns[i].prompt) {
        parts.push_back({{"slot", part.slot},
                         {"known", part.known},
                         {"text", part.text},
                         {"tokens", part.tokens},
                         {"most_tokens", part.most_tokens}});
      }
      one["prompt"] = std::move(parts);
      one["prompt_tokens"] = preview->turns[i].prompt_tokens;
      one["kv_bytes"] = preview->turns[i].kv_bytes;
    }
    list.push_back(std::move(one));
  }
  OrderedJson json = {{"schema", 1}, {"workflow", workflow.name()}, {"turns", std::move(list)}};
  json["warnings"] = plan_warnings(workflow, preview, inputs);
  json["hints"] = plan_hints(workflow, preview);
  if (preview)
    json["memory"] = {{"kv_bytes_per_token", preview->kv_bytes_per_token},
                      {"kv_peak_bytes", preview->kv_peak_bytes},
                      {"kv_ahead_bytes", preview->kv_ahead_bytes}};
  if (times) json["estimate"] = json_of(*times);
  return json;
}

}  // namespace

int plan(const PlanArguments& arguments) {
  const Workflow workflow = arguments.workflow.load_to_show();
  const auto inputs = arguments.inputs.values();
  std::optional<Preview> preview;
  try {
    preview = Engine::open({.model = arguments.workflow.default_model()}).preview(workflow, {.inputs = inputs});
  } catch (const ResourceError& error) {
    // The graph needs no model, so it is shown without token counts.
    if (arguments.estimate) throw;
    note(styled(Style::yellow, "without token counts: ") + printable(error.what(), Lines::keep) + "\n");
  }
  std::optional<RunEstimate> times;
  if (arguments.estimate) {
    const std::vector<TurnInfo> turns = workflow.turns();
    times = estimate(turns, *preview, speeds_of(turns, *preview, arguments.device, arguments.threads, arguments.json));
  }
  if (arguments.json) {
    result(json_of(workflow, preview, times, inputs).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
  } else {
    coloured_result(text_of(workflow, preview, times, inputs, arguments.ids));
  }
  return kOk;
}

}  // namespace baton::cli
