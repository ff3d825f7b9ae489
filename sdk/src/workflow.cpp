// SPDX-License-Identifier: Apache-2.0
// Workflow: a compiled workflow behind one immutable value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "agents/prompts/prompt.h"
#include "engine/base/hash.h"
#include "engine/base/json/json_parts.h"
#include "sdk/src/internal.h"
#include "sdk/src/model_path.h"
#include "workflows/format/diagnostics.h"
#include "workflows/format/placeholder.h"
#include "workflows/run/turn.h"

#include <baton/system.h>
#include <baton/turns.h>

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
    case SlotSource::Kind::agent_thinking:
      return SlotInfo::Source::agent_thinking;
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
  if (!placeholder->step.empty()) return -1;
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

/// The agents that the outputs name.
std::set<std::string> agents_in_outputs(const WorkflowSpec& spec) {
  std::set<std::string> agents;
  for (const auto& [name, pieces] : spec.outputs) {
    for (const TemplatePiece& piece : pieces) {
      if (piece.placeholder.empty()) continue;
      const std::optional<Placeholder> known = find_placeholder(spec, piece.placeholder);
      if (known && known->kind != Placeholder::Kind::input) agents.insert(known->id);
    }
  }
  return agents;
}

/// Suggests what was meant by a file that does not exist, or by a folder.
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
  const std::set<std::string> shown = agents_in_outputs(*impl_->plan->spec);
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
    if (const PlannedTurn* writer = planned.summary.get())
      turn.summaries = fmt::format(
          "{}model '{}'", writer->agent.empty() ? "" : fmt::format("agent '{}', ", writer->agent), writer->model);
    turn.answers = answering == static_cast<int>(turns.size());
    turn.in_outputs = shown.contains(planned.agent);
    turn.unread = planned.unread;
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

// Previews: the prompts of a plan's turns as far as their values are known, and the KV cache that they need.

namespace {

bool is_of(const AgentRecord& record, const PlannedTurn& turn) {
  return record.turn.empty() ? record.agent == turn.agent && record.round == turn.round : record.turn == turn.id;
}

std::int64_t kv_bytes_per_token(const Model& model) {
  return static_cast<std::int64_t>(model.kv_layout().token_bytes());
}

/// The values of the slots of one turn.
class Values {
 public:
  Values(const Plan& plan, const PreviewOptions& options)
      : plan_(plan), options_(options), inputs_(complete_inputs(*plan.spec, options.inputs, MissingInputs::left_out)) {}

  std::optional<std::string> text(const SlotSource& slot) const {
    if (const auto found = options_.values.find(slot.name); found != options_.values.end()) return found->second;
    using Kind = SlotSource::Kind;
    if (slot.kind == Kind::empty) return std::string();
    if (slot.kind == Kind::input) {
      const auto found = inputs_.find(slot.name);
      return found == inputs_.end() ? std::nullopt : std::optional(found->second);
    }
    const PlannedTurn& turn = plan_.turns[static_cast<std::size_t>(slot.turn)];
    if (slot.kind == Kind::tool_result) {
      const auto found = options_.tool_results.find(turn.id);
      return found == options_.tool_results.end() ? std::nullopt : std::optional(found->second);
    }
    if (options_.record == nullptr) return std::nullopt;
    for (const auto& agent : options_.record->agents) {
      if (!is_of(agent, turn)) continue;
      if (slot.kind == Kind::agent_output) return agent.output;
      if (slot.kind == Kind::agent_thinking) return agent.thinking;
      return answer_texts(agent.answer, {{slot.name, *parse_placeholder(slot.name)}})[slot.name];
    }
    return std::nullopt;
  }

  /// Maximum number of tokens of an unknown slot; 0: no bound is known.
  std::int64_t bound(const SlotSource& slot) const {
    if (slot.kind != SlotSource::Kind::agent_output && slot.kind != SlotSource::Kind::agent_answer) return 0;
    const PlannedTurn& turn = plan_.turns[static_cast<std::size_t>(slot.turn)];
    return turn.is_written() ? turn.max_tokens : 0;  // what tools return has another limit, in bytes
  }

 private:
  const Plan& plan_;
  const PreviewOptions& options_;
  const std::map<std::string, std::string> inputs_;  // those that are known
};

/// The parts of a model that a preview needs.
struct ShownModel {
  std::shared_ptr<const Model> local;       // null: it is on a server
  std::shared_ptr<InferenceEngine> served;  // null: it is not
  std::int64_t kv_bytes = 0;                // bytes of a token's KV; 0: the server has the KV
  std::string dtype, activations;

  const ModelText& text() const { return served ? served->text() : *local; }
  std::int64_t tokens_of(std::size_t ids) const {
    return served ? served->info().tokens_of(ids) : static_cast<std::int64_t>(ids);
  }
  std::int32_t context() const { return served ? served->info().context : local->options.context; }
};

/// The text of a prompt's part. Some tokenizers drop the blank at the beginning of a text, so others follow a letter.
std::string text_of_part(const ModelText& model, const PromptPart& part, bool is_first) {
  if (is_first) return prompt_text(model, {part});
  const Tokenizer& tokenizer = *model.tokenizer;
  const PromptPart letter{{}, tokenizer.encode_piece("a", SpecialTokens::as_text, tokenizer.start_inside())};
  return prompt_text(model, {letter, part}).substr(prompt_text(model, {letter}).size());
}

TurnPreview preview_of(const PlannedTurn& turn, const ShownModel& shown_model, const Values& values,
                       std::int64_t local_seconds) {
  const ModelText model = text_for(shown_model.text(), turn, local_seconds);
  // Slots without tokens have no part in a prompt, so an unknown one gets one for now.
  std::map<std::string, std::int64_t> unknown;
  std::map<std::string, std::string> known;
  const SlotContents contents = [&](const std::string& name) {
    const SlotSource* slot = turn.slot(name);
    if (auto text = slot == nullptr ? std::nullopt : values.text(*slot))
      return SlotContent{known[name] = std::move(*text)};
    unknown[name] = slot == nullptr ? 0 : values.bound(*slot);
    return SlotContent{"unknown", {0}};
  };
  TurnPreview preview;
  std::vector<PromptPart> parts;
  try {
    check_roles(model, turn.messages);
    parts = prompt_with_values(model, turn.messages, contents, nullptr, turn.calls.get());
    preview.note = merged_roles(model, turn.messages);
  } catch (const ModelError& error) {
    preview.error = fmt::format("agent '{}': {}", turn.agent, error.what());
  }
  preview.turn = turn.id;
  preview.agent = turn.agent;
  preview.round = turn.round;
  preview.model_path = model.path.string();
  preview.dtype = shown_model.dtype;
  preview.activations = shown_model.activations;
  preview.complete = preview.error.empty() && unknown.empty() &&
                     (!turn.calls || turn.calls->servers().empty());  // whose tools are not known
  preview.context = shown_model.context();
  for (const auto& part : parts) {
    PreviewPart shown;
    shown.slot = part.slot;
    const auto bound = unknown.find(part.slot);
    shown.known = part.slot.empty() || bound == unknown.end();
    if (shown.known) {
      shown.tokens = part.tokens;
      shown.text = text_of_part(model, part, preview.prompt.empty());
    }
    shown.most_tokens = shown.known ? shown_model.tokens_of(part.tokens.size()) : bound->second;
    preview.prompt_tokens += shown.most_tokens;
    preview.prompt.push_back(std::move(shown));
  }
  preview.output_tokens = turn.max_tokens;
  preview.kv_bytes = (preview.prompt_tokens + preview.output_tokens) * shown_model.kv_bytes;
  return preview;
}

/// Turns before each turn on its longest path.
std::vector<std::size_t> depths(const Plan& plan) {
  std::vector<std::size_t> depth(plan.turns.size(), 0);
  for (std::size_t i = 0; i < depth.size(); ++i) {
    for (const int need : plan.turns[i].needs) depth[i] = std::max(depth[i], depth[static_cast<std::size_t>(need)] + 1);
  }
  return depth;
}

/// The largest sum over waiting turns that read an output that is complete or being decoded.
std::int64_t ahead(const Plan& plan, const std::vector<TurnPreview>& turns) {
  if (!computes_ahead(*plan.reuse.method)) return 0;
  const std::vector<std::size_t> depth = depths(plan);
  std::vector<std::int64_t> sums(turns.size(), 0);  // by depth of the turns under way
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const PlannedTurn& turn = plan.turns[i];
    std::size_t first = depth[i];
    for (const SlotSource& slot : turn.slots) {
      if (slot.kind == SlotSource::Kind::agent_output)
        first = std::min(first, depth[static_cast<std::size_t>(slot.turn)]);
    }
    for (std::size_t at = first; at < depth[i] && !turn.when; ++at) sums[at] += turns[i].kv_bytes;
  }
  return sums.empty() ? 0 : *std::max_element(sums.begin(), sums.end());
}

/// The largest sum over turns that can be under way at the same time: those with the same number of turns before them
/// on their longest path, or the `max_parallel` largest of these.
std::int64_t peak(const Plan& plan, const std::vector<TurnPreview>& turns) {
  const std::vector<std::size_t> depth = depths(plan);
  std::map<std::size_t, std::vector<std::int64_t>> levels;
  for (std::size_t i = 0; i < turns.size(); ++i) levels[depth[i]].push_back(turns[i].kv_bytes);
  std::int64_t most = 0;
  for (auto& [level, bytes] : levels) {
    std::sort(bytes.rbegin(), bytes.rend());
    const int limit = plan.spec->topology.max_parallel;
    if (limit > 0 && bytes.size() > static_cast<std::size_t>(limit)) bytes.resize(static_cast<std::size_t>(limit));
    std::int64_t sum = 0;
    for (const auto one : bytes) sum += one;
    most = std::max(most, sum);
  }
  return most;
}

}  // namespace

std::string TurnPreview::text() const {
  std::string text;
  for (const auto& part : prompt) text += part.known ? part.text : "{{ " + part.slot + " }}";
  return text;
}

std::int64_t seconds_of_option(const std::string& local_time) {
  const std::optional<std::int64_t> seconds = local_seconds_of(local_time);
  if (!seconds)
    throw InputError(
        fmt::format("local_time: expected a time as 2026-01-31T13:00:00, found '{}'", beginning(local_time, 40)));
  return *seconds;
}

Preview make_preview(const Workflow& workflow, const PreviewOptions& options, const std::string& replacement_model) {
  std::string local_time = options.local_time;
  if (local_time.empty() && options.record != nullptr) local_time = options.record->local_time;
  const std::int64_t now = local_time.empty() ? local_seconds_now() : seconds_of_option(local_time);
  const auto inputs = complete_inputs(*workflow.impl().plan->spec, options.inputs, MissingInputs::left_out);
  const std::shared_ptr<const Plan> shown = with_messages(workflow.impl().plan, inputs);
  const Plan& plan = *shown;
  const Values values(plan, options);
  std::map<std::string, ShownModel> models;
  Preview preview;
  for (const auto& turn : plan.turns) {
    if (!turn.has_prompt()) {
      TurnPreview& tools = preview.turns.emplace_back();
      tools.turn = turn.id;
      tools.agent = turn.agent;
      tools.round = turn.round;
      tools.complete = true;
      continue;
    }
    const auto [found, added] = models.try_emplace(turn.model);
    ShownModel& model = found->second;
    if (added) {
      const LocatedModel located = locate_model(*plan.spec, turn.model, replacement_model);
      model.dtype = name_of(located.spec.dtype);
      model.activations = name_of(located.spec.activations);
      if (turn.served)
        model.served = open_served_model(located, 0.0);
      else
        model.local = open_model_text(located);
      if (model.local) model.kv_bytes = kv_bytes_per_token(*model.local);
    }
    preview.turns.push_back(with_resource_errors([&] { return preview_of(turn, model, values, now); }));
    preview.kv_bytes_per_token = std::max(preview.kv_bytes_per_token, model.kv_bytes);
  }
  preview.kv_peak_bytes = peak(plan, preview.turns);
  preview.kv_ahead_bytes = ahead(plan, preview.turns);
  preview.max_parallel = plan.spec->topology.max_parallel;
  return preview;
}

}  // namespace baton::inline v1
