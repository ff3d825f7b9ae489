// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/inspect/plan_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include <baton/turns.h>

#include "sdk/cli/console/options.h"
#include "sdk/cli/console/text.h"
#include "sdk/cli/console/view.h"

namespace baton::cli {
namespace {

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

/// Empty where the readers begin alike, or the text is too short to matter.
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
    for (const PreviewPart& part : turn.prompt) known += static_cast<std::int64_t>(part.tokens.size());
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
