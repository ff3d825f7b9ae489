// SPDX-License-Identifier: Apache-2.0
// baton render: the final prompt of an agent, as text and as token ids.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include <baton/baton.h>
#include <baton/preview.h>

#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/options.h"
#include "sdk/cli/console/suggest.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/verbs.h"

namespace baton::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct RenderArguments {
  WorkflowArguments workflow;
  InputArguments inputs;
  std::string agent;
  int round = 1;
  std::vector<std::string> values;
  bool json = false;
};

/// Throws Failure when the agent has no such turn.
const TurnPreview& find_turn(const Preview& preview, const RenderArguments& arguments) {
  std::vector<std::string> agents;
  int rounds = 0;
  for (const auto& turn : preview.turns) {
    agents.push_back(turn.agent);
    if (turn.agent != arguments.agent) continue;
    if (turn.round == arguments.round) return turn;
    rounds = std::max(rounds, turn.round);
  }
  if (rounds > 0) {
    throw Failure(kUsage, fmt::format("agent '{}' has {} rounds; --round {} does not exist", arguments.agent, rounds,
                                      arguments.round));
  }
  const std::string close = closest(arguments.agent, agents);
  throw Failure(kUsage, fmt::format("agent '{}' takes no turn; {}", arguments.agent,
                                    close.empty() ? fmt::format("expected one of {}", fmt::join(agents, ", "))
                                                  : fmt::format("did you mean '{}'?", close)));
}

OrderedJson json_of(const TurnPreview& turn) {
  OrderedJson parts = OrderedJson::array();
  OrderedJson ids = OrderedJson::array();
  for (const auto& part : turn.prompt) {
    OrderedJson one = {{"slot", part.slot}, {"known", part.known}, {"text", part.text}, {"tokens", part.tokens}};
    parts.push_back(std::move(one));
    for (const auto id : part.tokens) ids.push_back(id);
  }
  return {{"agent", turn.agent}, {"turn", turn.turn}, {"round", turn.round},       {"complete", turn.complete},
          {"text", turn.text()}, {"tokens", ids},     {"parts", std::move(parts)}, {"model", turn.model_path}};
}

/// Ids in lines, each part on its own.
std::string ids_of(const TurnPreview& turn) {
  std::string out;
  for (const auto& part : turn.prompt) {
    out += part.slot.empty() ? std::string("text:") : part.slot + ":";
    for (const auto id : part.tokens) out += fmt::format(" {}", id);
    out += part.known ? "\n" : " ?\n";
  }
  return out;
}

int render(const RenderArguments& arguments) {
  const Workflow workflow = arguments.workflow.load_to_show();
  const Engine engine = Engine::open({.model = arguments.workflow.default_model()});
  PreviewOptions known{.inputs = arguments.inputs.values()};
  for (const auto& value : arguments.values) {
    const auto at = value.find('=');
    if (at == std::string::npos) throw Failure(kUsage, fmt::format("--value {}: expected NAME=TEXT", value));
    known.values[value.substr(0, at)] = value.substr(at + 1);
  }
  const Preview preview = engine.preview(workflow, known);
  const TurnPreview& turn = find_turn(preview, arguments);
  if (arguments.json) {
    result(json_of(turn).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
    return kOk;
  }
  std::int64_t tokens = 0;
  std::string unknown;
  for (const auto& part : turn.prompt) {
    tokens += static_cast<std::int64_t>(part.tokens.size());
    if (!part.known && unknown.find(part.slot) == std::string::npos)
      unknown += (unknown.empty() ? "" : ", ") + part.slot;
  }
  result(turn.text() + "\n\n" + fmt::format("{} tokens\n", tokens) + ids_of(turn));
  if (!unknown.empty()) note(fmt::format("unknown before a run: {}; give a text with --value NAME=TEXT\n", unknown));
  return kOk;
}

}  // namespace

void add_render(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("render", "Show an agent's final prompt, as text and as token ids");
  auto arguments = std::make_shared<RenderArguments>();
  arguments->workflow.add_to(*verb);
  arguments->inputs.add_to(*verb);
  verb->add_option("--agent", arguments->agent, "Agent whose prompt is shown")->required()->type_name("A");
  verb->add_option("--round", arguments->round, "Round of the prompt")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  verb->add_option("--value", arguments->values, "Text of a placeholder, for example agent_analyst_current=\"...\"")
      ->type_name("NAME=TEXT")
      ->allow_extra_args(false);
  verb->add_flag("--json", arguments->json, "Print JSON, part by part");
  verb->footer(
      "Reads the model's tokenizer and chat template, but no weights. Placeholders that only a run can fill stay as\n"
      "{{ name }}.\n\n"
      "Examples:\n"
      "  baton render team.yaml --agent judge --input user_question=\"What is 6 x 7?\"\n"
      "  baton render team.yaml --agent judge --value agent_analyst_current=\"It is 42.\" --json");
  verb->callback([arguments, &action] { action = [arguments] { return render(*arguments); }; });
}

}  // namespace baton::cli
