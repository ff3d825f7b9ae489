// SPDX-License-Identifier: Apache-2.0
// baton plan: what a run would do: the expanded graph, each prompt's segments, how each placeholder is handed over and
// why, and how much KV cache the run needs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include <baton/baton.h>
#include <baton/preview.h>
#include <baton/turns.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/options.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PlanArguments {
  WorkflowArguments workflow;
  InputArguments inputs;
  bool ids = false;
  bool json = false;
};

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

std::string names_of(const std::vector<int>& turns, const std::vector<TurnInfo>& all) {
  std::string names;
  for (const int i : turns) {
    const auto& turn = all[static_cast<std::size_t>(i)];
    names += (names.empty() ? "" : ", ") + turn_name(turn.agent, turn.round);
  }
  return names;
}

std::string part_line(const PreviewPart& part, bool ids) {
  std::string line = "    " + padded(part.slot.empty() ? "text" : part.slot, 28);
  if (part.known) {
    line += padded_left(fmt::format("{} tokens", part.tokens.size()), 12);
  } else {
    line +=
        padded_left(part.most_tokens > 0 ? fmt::format("<= {} tokens", part.most_tokens) : std::string("? tokens"), 12);
  }
  if (!part.text.empty()) {
    const std::string text =
        Json(printable(part.text, Lines::keep)).dump(-1, ' ', false, Json::error_handler_t::replace);
    line += "  " + (display_width(text) > 70 ? head(text, 67) + "..." : text);
  }
  line += '\n';
  if (ids && !part.tokens.empty()) line += fmt::format("      {}\n", fmt::join(part.tokens, " "));
  return line;
}

/// The tokens before a slot of a prompt (of an unknown one its name, as negative numbers), and those of the slot.
struct SlotPlace {
  std::vector<std::int32_t> before;
  std::int64_t tokens = 0;  // at most, where the value is not known
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

/// One line for each text that several prompts of a model hold behind different beginnings.
std::vector<std::string> hints_of(const Workflow& workflow, const std::optional<Preview>& preview) {
  constexpr std::int64_t kWorthAHint = 64;  // tokens
  const auto turns = workflow.turns();
  std::map<std::tuple<std::string, SlotInfo::Source, int, std::string>, std::vector<std::size_t>> readers;
  for (std::size_t i = 0; preview && i < turns.size(); ++i) {
    for (const SlotInfo& slot : turns[i].slots) {
      if (slot.source == SlotInfo::Source::input || slot.source == SlotInfo::Source::agent_output)
        readers[{turns[i].model, slot.source, slot.turn, slot.turn < 0 ? slot.name : ""}].push_back(i);
    }
  }
  std::vector<std::string> hints;
  for (const auto& reader : readers) {
    const auto& text = reader.first;
    const std::vector<std::size_t>& indices = reader.second;
    std::vector<std::int32_t> before;
    std::vector<int> names;
    std::int64_t tokens = 0;
    bool differ = false;
    std::string slot_name;
    for (const std::size_t i : indices) {
      const auto slot = std::find_if(turns[i].slots.begin(), turns[i].slots.end(), [&](const SlotInfo& one) {
        return one.source == std::get<1>(text) && one.turn == std::get<2>(text) &&
               (one.turn >= 0 || one.name == std::get<3>(text));
      });
      const auto place = place_of(preview->turns[i], slot->name);
      if (!place) continue;
      if (names.empty()) {
        before = place->before;
        slot_name = slot->name;
      }
      differ = differ || place->before != before;
      tokens = std::max(tokens, place->tokens);
      if (std::find(names.begin(), names.end(), static_cast<int>(i)) == names.end())
        names.push_back(static_cast<int>(i));
    }
    if (!differ || names.size() < 2 || tokens < kWorthAHint) continue;
    hints.push_back(
        fmt::format("{} hold {{{{ {} }}}} (up to {} tokens) behind different texts; at the front of their prompts, "
                    "behind the same text, it would be computed once and exact",
                    names_of(names, turns), slot_name, tokens));
  }
  return hints;
}

std::string text_of(const Workflow& workflow, const std::optional<Preview>& preview, bool ids) {
  const auto turns = workflow.turns();
  std::string out = workflow.graph("ascii") + "\n";
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const TurnInfo& turn = turns[i];
    out += turn_name(turn.agent, turn.round);
    if (!turn.role.empty()) out += "  " + turn.role;
    out += turn.decides ? "  (decides)\n" : "\n";
    out += fmt::format("  after    {}\n", turn.needs.empty() ? "nothing" : names_of(turn.needs, turns));
    if (!turn.tools.empty()) out += fmt::format("  tools    {}\n", fmt::join(turn.tools, ", "));
    if (!turn.calls.empty()) out += fmt::format("  calls    {}\n", fmt::join(turn.calls, ", "));
    if (turn.model.empty()) {
      out += "  output   what the tools return\n";
    } else if (preview) {
      const TurnPreview& shown = preview->turns[i];
      const bool unbounded = std::any_of(shown.prompt.begin(), shown.prompt.end(),
                                         [](const PreviewPart& part) { return !part.known && part.most_tokens == 0; });
      out += "  prompt\n";
      for (const auto& part : shown.prompt) out += part_line(part, ids);
      out += fmt::format("  at most  {} prompt tokens{} + {} output tokens, {} of KV cache\n", shown.prompt_tokens,
                         unbounded ? " and parts without a bound" : "", shown.output_tokens,
                         size(static_cast<double>(shown.kv_bytes)));
    } else {
      out += fmt::format("  at most  {} output tokens\n", turn.max_tokens);
    }
    if (!turn.order.empty()) out += fmt::format("  order    {}\n", turn.order);
    if (!turn.slots.empty()) out += turn.model.empty() ? "  reads\n" : "  relay\n";
    for (const auto& slot : turn.slots) {
      const std::string from = slot.turn < 0 ? name_of(slot.source)
                                             : fmt::format("{} {}", name_of(slot.source), names_of({slot.turn}, turns));
      out += fmt::format("    {}{}{}{}\n", padded(slot.name, 28), padded("from " + from, 24), padded(slot.method, 12),
                         slot.reason);
    }
    out += '\n';
  }
  for (const std::string& hint : hints_of(workflow, preview)) out += "hint: " + hint + "\n";
  if (preview) {
    out += fmt::format("memory: {} of KV cache per token; at most {} at once",
                       size(static_cast<double>(preview->kv_bytes_per_token)),
                       size(static_cast<double>(preview->kv_peak_bytes)));
    if (preview->kv_ahead_bytes > 0)
      out += fmt::format(", and {} for prompts computed ahead, if memory allows",
                         size(static_cast<double>(preview->kv_ahead_bytes)));
    out += '\n';
  }
  return out;
}

Json json_of(const Workflow& workflow, const std::optional<Preview>& preview) {
  const auto turns = workflow.turns();
  Json list = Json::array();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const TurnInfo& turn = turns[i];
    Json slots = Json::array();
    for (const auto& slot : turn.slots) {
      slots.push_back({{"name", slot.name},
                       {"source", name_of(slot.source)},
                       {"turn", slot.turn},
                       {"method", slot.method},
                       {"reason", slot.reason}});
    }
    Json one = {
        {"agent", turn.agent},       {"role", turn.role},   {"round", turn.round},     {"needs", turn.needs},
        {"tools", turn.tools},       {"model", turn.model}, {"decides", turn.decides}, {"max_tokens", turn.max_tokens},
        {"slots", std::move(slots)}, {"order", turn.order}, {"calls", turn.calls}};
    if (preview) {
      Json parts = Json::array();
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
  Json json = {{"schema", 1}, {"workflow", workflow.name()}, {"turns", std::move(list)}};
  json["hints"] = hints_of(workflow, preview);
  if (preview)
    json["memory"] = {{"kv_bytes_per_token", preview->kv_bytes_per_token},
                      {"kv_peak_bytes", preview->kv_peak_bytes},
                      {"kv_ahead_bytes", preview->kv_ahead_bytes}};
  return json;
}

int plan(const PlanArguments& arguments) {
  const Workflow workflow = arguments.workflow.load();
  const auto inputs = arguments.inputs.values();
  std::optional<Preview> preview;
  try {
    preview = Engine::open({.model = arguments.workflow.default_model()}).preview(workflow, {.inputs = inputs});
  } catch (const ResourceError& error) {
    // The graph needs no model, so it is shown without token counts.
    note(styled(Style::yellow, "without token counts: ") + printable(error.what(), Lines::keep) + "\n");
  }
  if (arguments.json) {
    result(json_of(workflow, preview).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    result(text_of(workflow, preview, arguments.ids));
  }
  return kOk;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("plan", "Show what a run would do: graph, prompts, hand-overs, memory");
  auto arguments = std::make_shared<PlanArguments>();
  arguments->workflow.add_to(*verb);
  arguments->inputs.add_to(*verb);
  verb->add_flag("--ids", arguments->ids, "Also print the token ids of each segment");
  verb->add_flag("--json", arguments->json, "Print one JSON object, including token ids");
  verb->footer(
      "Reads the model's configuration and tokenizer, but no weights.\n\n"
      "Examples:\n"
      "  baton plan team.yaml\n"
      "  baton plan team.yaml --input user_question=@question.txt --relay full --ids");
  verb->callback([arguments, &action] { action = [arguments] { return plan(*arguments); }; });
}

}  // namespace baton::cli
