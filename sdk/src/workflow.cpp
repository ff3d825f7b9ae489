// SPDX-License-Identifier: Apache-2.0
// Workflow: a compiled workflow behind one immutable value.
#include "engine/base/hash.h"

#include "sdk/src/internal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <baton/explanation.h>
#include <baton/system.h>
#include <baton/turns.h>

#include "sdk/src/model_path.h"
#include "workflows/format/diagnostics.h"
#include "workflows/format/placeholder.h"

namespace baton::inline v1 {
namespace {

/// Of the files' texts, of what the settings and the environment make of the prompts, and of the settings.
std::string fingerprint_of(const Plan& plan, const WorkflowOptions& options) {
  StreamHash hash;
  const auto add = [&](const std::string& text) {
    const std::uint64_t size = text.size();
    hash.add(&size, sizeof(size));
    hash.add(text.data(), text.size());
  };
  for (const auto& [file, text] : plan.spec->sources) add(text);
  for (const auto& [name, value] : options.set) add(name + "=" + value);
  for (const auto& [name, path] : options.models) add(name + "=" + path);
  for (const PlannedTurn& turn : plan.turns) {
    add(turn.id);
    for (const PromptMessage& message : turn.messages) {
      add(message.role);
      for (const PromptPiece& piece : message.pieces) add(piece.slot.empty() ? piece.text : piece.slot);
    }
  }
  return hash.hex();
}

template <typename Compile>
std::shared_ptr<const Workflow::Impl> make_impl(const WorkflowOptions& options, std::string file, Compile compile) {
  auto impl = std::make_shared<Workflow::Impl>();
  impl->file = std::move(file);
  impl->options = options;
  impl->tools = make_registry(options.tools);
  ReadOptions read_options;
  read_options.tools = impl->tools.get();
  read_options.absent_tools = options.absent_tools;
  read_options.set = options.set;
  read_options.models = options.models;
  for (const std::filesystem::path& share : share_folders()) read_options.role_folders.push_back(share / "roles");
  impl->plan = std::make_shared<const Plan>(compile(read_options));
  impl->fingerprint = fingerprint_of(*impl->plan, options);
  return impl;
}

SlotInfo::Source public_source(SlotSource::Kind kind) {
  switch (kind) {
    case SlotSource::Kind::input:
      return SlotInfo::Source::input;
    case SlotSource::Kind::agent_output:
      return SlotInfo::Source::agent_output;
    case SlotSource::Kind::agent_answer:
      return SlotInfo::Source::agent_answer;
    case SlotSource::Kind::tool_result:
      return SlotInfo::Source::tool_result;
    case SlotSource::Kind::empty:
      break;
  }
  return SlotInfo::Source::empty;
}

/// TurnInfo::answers; -1: there is no such turn. What is written may change while it is repeated after a failure, calls
/// tools or is replaced by a fallback, and which turn is an agent's last one may depend on conditions.
int answering_turn(const Plan& plan) {
  if (plan.spec->outputs.size() != 1 || plan.spec->outputs.front().second.size() != 1) return -1;
  const auto placeholder = find_placeholder(*plan.spec, plan.spec->outputs.front().second.front().placeholder);
  if (!placeholder || placeholder->kind != Placeholder::Kind::agent || placeholder->history != 0) return -1;
  const int last = plan.last_turn_of(placeholder->id, plan.rounds);
  if (last < 0) return -1;
  const PlannedTurn& turn = plan.turns[static_cast<std::size_t>(last)];
  int turns = 0, of_round = 0;
  for (const PlannedTurn& one : plan.turns) {
    turns += one.agent == turn.agent ? 1 : 0;
    of_round += one.agent == turn.agent && one.round == turn.round ? 1 : 0;
  }
  const bool is_last = turns == 1 || (of_round == 1 && !turn.when && !plan.spec->topology.until);
  const bool is_final = turn.on_error == OnError::fail && turn.retry.attempts == 1 && !turn.calls;
  return turn.has_prompt() && is_last && is_final ? last : -1;
}

/// What may have been meant by a file that is not there, or by a folder.
std::string hint_for(const std::filesystem::path& file) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(file, error);
  if (!folder && std::filesystem::exists(file, error)) return {};
  std::vector<std::string> names;
  const std::filesystem::path around = folder ? file : file.parent_path();
  for (const auto& one : workflow_files(around.empty() ? "." : around))
    names.push_back((around / one.filename()).string());
  if (folder) return names.empty() ? "" : fmt::format("it holds: {}", fmt::join(names, ", "));
  if (!file.has_parent_path()) {
    const std::vector<std::string> installed = workflows();
    names.insert(names.end(), installed.begin(), installed.end());
  }
  return Diagnostics().suggestion(file.string(), names);
}

}  // namespace

Workflow Workflow::load(const std::filesystem::path& file, const WorkflowOptions& options) {
  const std::filesystem::path found = find_workflow(file);
  return Workflow(make_impl(options, file.string(), [&](ReadOptions read) {
    read.hint = [&] { return hint_for(found); };
    return compile(found, read);
  }));
}

Workflow Workflow::parse(std::string_view yaml, const WorkflowOptions& options, const std::filesystem::path& name) {
  return Workflow(make_impl(options, {}, [&](const ReadOptions& read) { return compile(yaml, name, read); }));
}

const std::string& Workflow::name() const { return impl_->plan->spec->name; }

std::string Workflow::fingerprint() const { return impl_->fingerprint; }

std::vector<InputInfo> Workflow::inputs() const {
  std::vector<InputInfo> inputs;
  for (const auto& input : impl_->plan->spec->inputs) {
    inputs.push_back({input.name, input.required, input.messages, input.default_value, input.description});
  }
  return inputs;
}

std::vector<AgentInfo> Workflow::agents() const {
  std::vector<AgentInfo> agents;
  for (const auto& agent : impl_->plan->spec->agents) {
    agents.push_back({agent.id, agent.role, agent.output.has_answer()});
  }
  return agents;
}

std::vector<std::string> Workflow::outputs() const {
  std::vector<std::string> names;
  for (const auto& [name, pieces] : impl_->plan->spec->outputs) names.push_back(name);
  return names;
}

std::vector<std::string> Workflow::absent_tools() const { return impl_->plan->spec->absent_tools; }

std::vector<TurnInfo> Workflow::turns() const {
  std::vector<TurnInfo> turns;
  const int answering = answering_turn(*impl_->plan);
  for (const auto& planned : impl_->plan->turns) {
    TurnInfo turn;
    turn.id = planned.id;
    turn.agent = planned.agent;
    if (const AgentSpec* agent = impl_->plan->spec->agent(planned.agent)) turn.role = agent->role;
    turn.round = planned.round;
    turn.needs = planned.needs;
    for (const auto& slot : planned.slots) {
      turn.slots.push_back(
          {slot.name, public_source(slot.kind), slot.turn, std::string(slot.method->name), slot.reason});
    }
    for (const auto& tool : planned.tools) turn.tools.push_back(tool.tool);
    if (planned.calls) {
      for (const ToolSchema& tool : planned.calls->schemas()) turn.calls.push_back(tool.name);
      for (const ServerTools& server : planned.calls->servers()) turn.calls.push_back("mcp: " + server.server);
    }
    turn.tools_answer = !planned.is_written();
    turn.model = planned.model;
    turn.max_tokens = planned.max_tokens;
    turn.may_fail = planned.on_error != OnError::fail;
    turn.decides = planned.decides;
    turn.asks = planned.asks();
    turn.order = planned.order;
    turn.answers = answering == static_cast<int>(turns.size());
    turns.push_back(std::move(turn));
  }
  return turns;
}

std::string Workflow::graph(std::string_view format) const { return format_graph(*impl_->plan, std::string(format)); }

std::string workflow_schema() { return workflow_json_schema(); }
std::string workflow_reference() { return workflow_reference_markdown(); }

const std::vector<Explanation>& explanations() {
  static const std::vector<Explanation> all = [] {
    std::vector<Explanation> found;
    for (const ErrorCode& code : error_codes()) {
      found.push_back({std::string(code.code), std::string(code.meaning), std::string(code.causes),
                       std::string(code.remedy), std::string(code.wrong), std::string(code.right)});
    }
    return found;
  }();
  return all;
}

}  // namespace baton::inline v1
