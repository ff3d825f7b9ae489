// SPDX-License-Identifier: Apache-2.0
#include "sdk/cli/measure/profile_data.h"

#include <fmt/format.h>

#include <baton/turns.h>
#include "sdk/cli/console/exit_code.h"
#include "sdk/cli/console/interrupt.h"
#include "sdk/cli/console/terminal.h"
#include "sdk/cli/measure/dataset.h"

namespace baton::cli {
namespace {

using Parts = std::vector<PreviewPart>;

std::vector<std::int32_t> tokens_of(Parts::const_iterator begin, Parts::const_iterator end) {
  std::vector<std::int32_t> tokens;
  for (auto part = begin; part != end; ++part) tokens.insert(tokens.end(), part->tokens.begin(), part->tokens.end());
  return tokens;
}

/// Every answer that stands in another turn's prompt, once for each place.
std::vector<HandOver> hand_overs_of(const Workflow& workflow, const Preview& preview) {
  std::vector<HandOver> found;
  const auto turns = workflow.turns();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Parts& prompt = preview.turns[i].prompt;
    if (!preview.turns[i].complete) continue;  // the result of a tool is not in a record
    for (const auto& slot : turns[i].slots) {
      if (slot.source != SlotInfo::Source::agent_output || slot.turn < 0) continue;
      const TurnPreview& producer = preview.turns[static_cast<std::size_t>(slot.turn)];
      if (!producer.complete || producer.model_path != preview.turns[i].model_path) continue;
      for (auto part = prompt.begin(); part != prompt.end(); ++part) {
        if (part->slot != slot.name || part->tokens.empty()) continue;
        found.push_back({tokens_of(producer.prompt.begin(), producer.prompt.end()), part->tokens,
                         tokens_of(prompt.begin(), part), tokens_of(part + 1, prompt.end())});
      }
    }
  }
  return found;
}

}  // namespace

std::vector<HandOver> hand_overs_of_runs(const std::string& workflow_file, const std::string& dataset,
                                         const std::string& model, const EngineArguments& engine_arguments,
                                         std::size_t count, std::uint64_t seed) {
  WorkflowArguments arguments;
  arguments.file = workflow_file;
  arguments.models = {model};
  arguments.relay = "full";
  const Workflow workflow = arguments.load();
  const auto questions = read_dataset(dataset, count);
  const std::size_t share = (count + questions.size() - 1) / questions.size();
  const Engine engine = Engine::open(engine_arguments.options(model, false));
  engine.prepare(workflow);
  std::vector<HandOver> collected;
  for (std::size_t i = 0; i < questions.size() && collected.size() < count; ++i) {
    if (can_redraw()) note(fmt::format("\r\x1b[Krun {} of {}", i + 1, questions.size()));
    RunOptions options;
    options.inputs = questions[i].inputs;
    options.seed = seed;
    options.stop = interrupted();
    const RunRecord record = engine.run(workflow, options);
    if (interrupted().stop_requested()) break;
    if (record.error_kind == ErrorKind::resources) throw Failure(kResources, record.error);
    if (record.state != RunState::ok) continue;
    PreviewOptions known;
    known.inputs = questions[i].inputs;
    known.record = &record;
    const std::vector<HandOver> all = hand_overs_of(workflow, engine.preview(workflow, known));
    // Another pair of agents each time: neighbours in the list are alike.
    for (std::size_t k = 0; k < std::min(share, all.size()) && collected.size() < count; ++k) {
      collected.push_back(all[(i + k * std::max<std::size_t>(1, all.size() / share)) % all.size()]);
    }
  }
  if (can_redraw()) note("\r\x1b[K");
  if (collected.empty() && !interrupted().stop_requested()) {
    throw Failure(kInvalidFile,
                  fmt::format("{}: no answer of an agent is part of another agent's prompt", workflow_file));
  }
  return collected;
}

}  // namespace baton::cli
