// SPDX-License-Identifier: Apache-2.0
// baton check --plan: what a run would do: its size, what is wrong with it, the expanded graph, each prompt's segments,
// how each placeholder is handed over and why, and how much KV cache the run needs.
#include "sdk/cli/plan.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include <baton/baton.h>
#include <baton/preview.h>
#include <baton/rates.h>
#include <baton/reuse_method.h>
#include <baton/turns.h>

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
    case SlotInfo::Source::agent_thinking:
      return "thinking";
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
    std::string count = part.known             ? fmt::format("{} tokens", part.most_tokens)
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
  if (!turn.summaries.empty()) out.add(Style::plain, fmt::format("  summary  by {}\n", turn.summaries));
  if (turn.tools_answer)
    out.add(Style::plain, turn.asks            ? "  output   the answer to its question\n"
                          : turn.calls.empty() ? "  output   what the tools return\n"
                                               : "  output   what the called tools return\n");
  if (turn.model.empty()) {
  } else if (shown != nullptr) {
    out.add(Style::plain, "  prompt\n");
    for (const auto& part : shown->prompt) out.part(part);
    if (!shown->note.empty()) out.advice(Style::plain, "  note", shown->note);
    if (!shown->error.empty()) out.advice(Style::red, "  error", shown->error);
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
    if (!turn.summaries.empty()) one["summaries"] = turn.summaries;
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
      if (!preview->turns[i].note.empty()) one["note"] = preview->turns[i].note;
      if (!preview->turns[i].error.empty()) one["error"] = preview->turns[i].error;
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

namespace {

constexpr std::int64_t kMaxMeasured = 128;  // tokens of the prompt that is measured: of a large model more take long
constexpr std::int64_t kMinMeasured = 16;

bool is_here(const TurnPreview& turn) { return !turn.prompt.empty() && turn.kv_bytes > 0; }

/// Turns in groups that can be under way at the same time, as Preview::kv_peak_bytes has them.
std::vector<std::vector<std::size_t>> groups_of(const std::vector<TurnInfo>& turns, const Preview& preview) {
  std::vector<std::size_t> depth(turns.size(), 0);
  std::vector<std::vector<std::size_t>> levels;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    for (const int need : turns[i].needs) depth[i] = std::max(depth[i], depth[static_cast<std::size_t>(need)] + 1);
    if (!is_here(preview.turns[i])) continue;
    if (levels.size() <= depth[i]) levels.resize(depth[i] + 1);
    levels[depth[i]].push_back(i);
  }
  std::vector<std::vector<std::size_t>> groups;
  for (const auto& level : levels) {
    const auto most = preview.max_parallel > 0 ? static_cast<std::size_t>(preview.max_parallel) : level.size();
    for (std::size_t at = 0; at < level.size(); at += most)
      groups.emplace_back(level.begin() + static_cast<std::ptrdiff_t>(at),
                          level.begin() + static_cast<std::ptrdiff_t>(std::min(at + most, level.size())));
  }
  return groups;
}

const SpeedOfModel* rates_of(const TurnPreview& turn, const std::vector<SpeedOfModel>& rates) {
  const auto found =
      std::find_if(rates.begin(), rates.end(), [&](const SpeedOfModel& one) { return one.model == turn.model_path; });
  return found == rates.end() ? nullptr : &*found;
}

std::int64_t handed_over(const TurnInfo& turn, const TurnPreview& preview) {
  std::set<std::string> names;  // names of slots whose KV may be there
  for (const SlotInfo& slot : turn.slots) {
    const ReuseMethod* method = find_reuse_method(slot.method);
    if (method != nullptr && (method->reuses || method->ahead)) names.insert(slot.name);
  }
  std::int64_t tokens = 0;
  for (const PreviewPart& part : preview.prompt) tokens += names.count(part.slot) > 0 ? part.most_tokens : 0;
  return tokens;
}

}  // namespace

double SpeedOfModel::step_of(int sequences) const {
  if (step_ms.empty()) return 0;
  const auto above = step_ms.lower_bound(sequences);
  if (above != step_ms.end() && above->first == sequences) return above->second;
  if (step_ms.size() == 1) return step_ms.begin()->second;
  const auto last = above == step_ms.end() ? std::prev(above) : above == step_ms.begin() ? std::next(above) : above;
  const auto first = std::prev(last);
  const double slope = (last->second - first->second) / (last->first - first->first);
  return first->second + slope * (sequences - first->first);
}

std::map<std::string, int> most_concurrent(const std::vector<TurnInfo>& turns, const Preview& preview) {
  std::map<std::string, int> most;
  for (const auto& group : groups_of(turns, preview)) {
    std::map<std::string, int> counts;
    for (const std::size_t turn : group) ++counts[preview.turns[turn].model_path];
    for (const auto& [model, count] : counts) most[model] = std::max(most[model], count);
  }
  return most;
}

RunEstimate estimate(const std::vector<TurnInfo>& turns, const Preview& preview, std::vector<SpeedOfModel> rates) {
  RunEstimate out;
  out.rates = std::move(rates);
  for (std::size_t i = 0; i < turns.size(); ++i) {
    TurnEstimate& turn = out.turns.emplace_back();
    const TurnPreview& shown = preview.turns[i];
    const SpeedOfModel* of = rates_of(shown, out.rates);
    turn.known = is_here(shown) && of != nullptr;
    out.whole = out.whole && (turn.known || shown.prompt.empty());
    if (!turn.known) continue;
    turn.handed_over = handed_over(turns[i], shown);
    const auto prompt_ms = [&](std::int64_t tokens) {
      return 1000 * static_cast<double>(tokens) / of->prefill_tokens_per_s;
    };
    turn.prompt_ms = prompt_ms(shown.prompt_tokens);
    turn.least_prompt_ms = prompt_ms(shown.prompt_tokens - turn.handed_over);
    turn.answer_ms = static_cast<double>(shown.output_tokens) * of->step_of(1);
  }
  for (const auto& group : groups_of(turns, preview)) {
    std::map<const SpeedOfModel*, std::pair<int, std::int64_t>> decoding;  // sequences, and tokens of the longest
    for (const std::size_t i : group) {
      if (!out.turns[i].known) continue;
      out.total_ms += out.turns[i].prompt_ms;
      out.least_total_ms += out.turns[i].least_prompt_ms;
      auto& [sequences, tokens] = decoding[rates_of(preview.turns[i], out.rates)];
      ++sequences;
      tokens = std::max(tokens, preview.turns[i].output_tokens);
    }
    for (const auto& [model, answers] : decoding) {
      const double ms = static_cast<double>(answers.second) * model->step_of(answers.first);
      out.total_ms += ms;
      out.least_total_ms += ms;
    }
  }
  return out;
}

std::vector<SpeedOfModel> speeds_of(const std::vector<TurnInfo>& turns, const Preview& preview,
                                    const std::string& device, int threads, bool quiet) {
  std::vector<SpeedOfModel> all;
  for (const auto& [model, most] : most_concurrent(turns, preview)) {
    std::int64_t longest = kMinMeasured;
    RateOptions options{.model = model};
    for (const TurnPreview& turn : preview.turns) {
      if (turn.model_path != model) continue;
      longest = std::min(std::max(longest, turn.prompt_tokens), std::min(kMaxMeasured, turn.context - 1));
      options.dtype = turn.dtype;
      options.activations = turn.activations;
    }
    const int tokens = static_cast<int>(longest);
    options.prefill = {tokens};
    options.decode = {{1, tokens}};
    if (most > 1) options.decode.push_back({most, tokens});
    options.device = device;
    options.threads = threads;
    options.stop = interrupted();
    if (!quiet && stderr_is_terminal())
      options.on_progress = [](const std::string& what) { note("measuring " + what + "\n"); };
    const ModelRates found = measure_rates(options);
    SpeedOfModel rates{model, found.device, found.threads, 0, {}};
    for (const PrefillRate& one : found.prefill) rates.prefill_tokens_per_s = one.tokens_per_s;
    for (const DecodeRate& one : found.decode)
      rates.step_ms[static_cast<int>(one.rows)] = 1000 * static_cast<double>(one.rows) / one.tokens_per_s;
    if (!found.complete || rates.prefill_tokens_per_s <= 0) throw Failure(kInterrupted, "");
    all.push_back(std::move(rates));
  }
  return all;
}

std::string time_of(const TurnEstimate& turn) {
  if (!turn.known) return "unknown: the model is on a server";
  const std::string least = turn.handed_over > 0
                                ? fmt::format(" ({} where {} tokens are reused or computed ahead)",
                                              duration(turn.least_prompt_ms), grouped(turn.handed_over))
                                : "";
  return fmt::format("at most about {}: {} for the prompt{}, {} for the answer",
                     duration(turn.prompt_ms + turn.answer_ms), duration(turn.prompt_ms), least,
                     duration(turn.answer_ms));
}

std::string estimate_text(const RunEstimate& estimate) {
  std::string text = fmt::format("at most about {} on this machine", duration(estimate.total_ms));
  if (estimate.least_total_ms < estimate.total_ms)
    text += fmt::format(", {} if all that can be handed over costs nothing", duration(estimate.least_total_ms));
  for (const SpeedOfModel& rates : estimate.rates) {
    text += fmt::format("; measured now on {}: {} computes {} prompt tokens/s", rates.device,
                        std::filesystem::path(rates.model).filename().string(),
                        grouped(std::llround(rates.prefill_tokens_per_s)));
    for (const auto& [sequences, ms] : rates.step_ms) {
      const std::string speed = grouped(std::llround(1000 * sequences / ms));
      text += sequences == 1 ? fmt::format(" and writes {} tokens/s in one answer", speed)
                             : fmt::format(", {} tokens/s in {} at a time", speed, sequences);
    }
  }
  return text + ". Without loading, tools, calls and further attempts" +
         (estimate.whole ? "" : ", and without models on servers") + "; answers that end before max_tokens take less.";
}

namespace {

/// The tokens before a slot of a prompt (of an unknown one its name, as negative numbers), and those of the slot.
struct SlotPlace {
  std::vector<std::int32_t> before;
  std::int64_t tokens = 0;  // at most, if the value is unknown
};

std::optional<SlotPlace> place_of(const TurnPreview& turn, const std::string& slot) {
  SlotPlace place;
  for (const PreviewPart& part : turn.prompt) {
    if (part.slot == slot) {
      place.tokens = part.most_tokens;
      return place;
    }
    place.before.insert(place.before.end(), part.tokens.begin(), part.tokens.end());
    for (const char letter : part.known ? std::string() : part.slot) place.before.push_back(-1 - letter);
  }
  return std::nullopt;
}

/// A text that prompts read: an input, or what a turn said. Texts of two models are two.
struct ReadText {
  std::string model;
  SlotInfo::Source source = SlotInfo::Source::empty;
  int turn = -1;
  std::string input;  // its name, of an input

  ReadText(const TurnInfo& reader, const SlotInfo& slot)
      : model(reader.model), source(slot.source), turn(slot.turn), input(slot.turn < 0 ? slot.name : "") {}
  bool operator<(const ReadText& other) const {
    return std::tie(model, source, turn, input) < std::tie(other.model, other.source, other.turn, other.input);
  }
};

/// A place where a prompt holds a text.
struct PromptPlace {
  int turn = 0;
  std::string slot;
};

/// Empty if the readers begin alike, or the text is too short to matter.
std::string hint_of(const std::vector<PromptPlace>& readings, const std::vector<TurnInfo>& turns,
                    const Preview& preview) {
  constexpr std::int64_t kWorthAHint = 64;  // tokens
  std::optional<SlotPlace> first;
  std::vector<int> readers;
  std::int64_t tokens = 0, prompts = 0;
  bool differ = false;
  for (const PromptPlace& reading : readings) {
    const TurnPreview& prompt = preview.turns[static_cast<std::size_t>(reading.turn)];
    const auto place = place_of(prompt, reading.slot);
    if (!place || std::find(readers.begin(), readers.end(), reading.turn) != readers.end()) continue;
    if (!first) first = place;
    differ = differ || place->before != first->before;
    tokens = std::max(tokens, place->tokens);
    prompts += prompt.prompt_tokens;
    readers.push_back(reading.turn);
  }
  if (!differ || readers.size() < 2 || tokens < kWorthAHint) return {};
  const auto again = static_cast<std::int64_t>(readers.size() - 1) * tokens;
  return fmt::format(
      "{} hold {{{{ {} }}}} (up to {} tokens) behind different texts; moved to the front of their prompts, behind the "
      "same text, it would be computed once and exact: {:.0f} % less of these prompts to compute",
      names_of(readers, turns), readings.front().slot, grouped(tokens),
      100.0 * static_cast<double>(again) / static_cast<double>(prompts));
}

}  // namespace

std::string names_of(const std::vector<int>& turns, const std::vector<TurnInfo>& all) {
  std::string names;
  for (const int i : turns) {
    const auto& turn = all[static_cast<std::size_t>(i)];
    names += (names.empty() ? "" : ", ") + turn_name(turn.agent, turn.round);
  }
  return names;
}

std::vector<std::string> plan_warnings(const Workflow& workflow, const std::optional<Preview>& preview,
                                       const std::map<std::string, std::string>& inputs) {
  std::vector<std::string> warnings;
  std::set<std::string> warned;  // agents: later rounds say nothing new
  for (const TurnPreview& turn : preview ? preview->turns : std::vector<TurnPreview>()) {
    if (turn.context == 0 || warned.count(turn.agent) > 0) continue;
    const std::string name = turn_name(turn.agent, turn.round);
    std::int64_t known = 0;
    for (const PreviewPart& part : turn.prompt) known += part.known ? part.most_tokens : 0;
    if (known >= turn.context) {
      warnings.push_back(
          fmt::format("the prompt of {} cannot fit: {} tokens of it are known, and the context of its "
                      "model has {}",
                      name, grouped(known), grouped(turn.context)));
    } else if (turn.prompt_tokens + turn.output_tokens > turn.context) {
      warnings.push_back(
          fmt::format("{} may not fit: up to {} prompt tokens and {} output tokens, and the context of "
                      "its model has {}",
                      name, grouped(turn.prompt_tokens), grouped(turn.output_tokens), grouped(turn.context)));
    } else {
      continue;
    }
    warned.insert(turn.agent);
  }
  if (const std::string host = tools_of_host(workflow); !host.empty())
    warnings.push_back("only the program that provides these tools can run it: " + host);
  std::set<std::string> read;
  for (const TurnInfo& turn : workflow.turns()) {
    if (!turn.unread.empty()) warnings.push_back(turn.unread);
    for (const SlotInfo& slot : turn.slots) {
      if (slot.source == SlotInfo::Source::input) read.insert(slot.name);
    }
  }
  for (const InputInfo& input : workflow.inputs()) {
    if (input.required || input.default_value || read.count(input.name) == 0) continue;
    if (const auto given = inputs.find(input.name); given == inputs.end() || given->second.empty())
      warnings.push_back(
          fmt::format("{{{{ {0} }}}} stays empty: the input is optional, has no default and is not given "
                      "(--input {0}=TEXT)",
                      input.name));
  }
  return warnings;
}

std::vector<std::string> plan_hints(const Workflow& workflow, const std::optional<Preview>& preview) {
  if (!preview) return {};
  const std::vector<TurnInfo> turns = workflow.turns();
  std::map<ReadText, std::vector<PromptPlace>> texts;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    for (const SlotInfo& slot : turns[i].slots) {
      if (slot.source == SlotInfo::Source::input || slot.source == SlotInfo::Source::agent_output)
        texts[ReadText(turns[i], slot)].push_back({static_cast<int>(i), slot.name});
    }
  }
  std::vector<std::string> hints;
  for (const auto& [text, readings] : texts) {
    if (std::string hint = hint_of(readings, turns, *preview); !hint.empty()) hints.push_back(std::move(hint));
  }
  return hints;
}

}  // namespace baton::cli
