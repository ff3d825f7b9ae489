// SPDX-License-Identifier: Apache-2.0
// Workflow: a compiled workflow behind one immutable value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "agents/prompts/prompt.h"
#include "engine/backend/make_backend.h"
#include "engine/base/hash.h"
#include "engine/base/json/json_parts.h"
#include "engine/kv/kv_cache.h"
#include "engine/local_engine.h"
#include "engine/loop/prompt_assembly.h"
#include "sdk/src/internal.h"
#include "sdk/src/model_path.h"
#include "workflows/format/diagnostics.h"
#include "workflows/format/placeholder.h"
#include "workflows/run/turn.h"
#include "workflows/run/turn_thinking.h"

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
  std::string dtype, activations;

  const ModelText& text() const { return served ? served->text() : *local; }
  std::int64_t tokens_of(std::size_t ids) const {
    return served ? served->info().tokens_of(ids) : static_cast<std::int64_t>(ids);
  }
  std::int32_t context() const { return served ? served->info().context : local->options.context; }
};

/// What the caches of a model's sequences take. The processor's key blocks are no smaller than a GPU's.
class KvNeeds {
 public:
  /// Returns the bytes that an engine reserves for a turn whose prompt and answer have so many tokens; 0 if a server
  /// has the KV.
  std::int64_t bytes(const ShownModel& shown, const PlannedTurn& turn, const ReuseOptions& reuse,
                     std::int64_t tokens) const {
    if (!shown.local) return 0;
    const std::int64_t more =
        computes_ahead(*reuse.method) ? 1 : 0;  // a prompt that is computed ahead has a token more
    const std::int64_t most = tokens + most_thinking(*shown.local, turn) + more;
    return cache_bytes(*shown.local, turn, reuse, std::min<std::int64_t>(most, shown.local->options.context));
  }

  /// Returns the bytes of one more token.
  std::int64_t token_bytes(const ShownModel& shown, const PlannedTurn& turn, const ReuseOptions& reuse) const {
    if (!shown.local) return 0;
    const auto of = [&](std::int64_t tokens) { return cache_bytes(*shown.local, turn, reuse, tokens); };
    return (of(2 * kKeyBlock) - of(kKeyBlock)) / kKeyBlock;
  }

 private:
  std::int64_t cache_bytes(const Model& model, const PlannedTurn& turn, ReuseOptions reuse, std::int64_t tokens) const {
    if (model.kv_layout().state_bytes > 0) reuse.record = false;  // as the engine does
    const bool goes_on = turn.calls || turn.remember || most_thinking(model, turn) > 0;
    const LayerRange range = reuse.range.given() ? reuse.range : LayerRange::by_depth(model.config.layers);
    const KvLayout layout = layout_for(reuse, goes_on && reuses_prefixes(*reuse.method), model, range);
    return static_cast<std::int64_t>(KvCache::bytes_for(*backend_, layout, static_cast<std::int32_t>(tokens)));
  }

  std::unique_ptr<Backend> backend_ = make_backend({.device = "cpu", .threads = 1});
};

/// The text of a prompt's part. Some tokenizers drop the blank at the beginning of a text, so others follow a letter.
std::string text_of_part(const ModelText& model, const PromptPart& part, bool is_first) {
  if (is_first) return prompt_text(model, {part});
  const Tokenizer& tokenizer = *model.tokenizer;
  const PromptPart letter{{}, tokenizer.encode_piece("a", SpecialTokens::as_text, tokenizer.start_inside())};
  return prompt_text(model, {letter, part}).substr(prompt_text(model, {letter}).size());
}

/// All but TurnPreview::kv_bytes.
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
  return preview;
}

/// By turn, which turns are over when it begins: those on paths of at least `edges` edges to it.
std::vector<std::vector<bool>> turns_before(const Plan& plan, int edges) {
  std::vector<std::vector<bool>> before(plan.turns.size(), std::vector<bool>(plan.turns.size()));
  std::vector<std::vector<bool>> all = before;
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (const int need : plan.turns[i].needs) {
      const auto at = static_cast<std::size_t>(need);
      all[i][at] = true;
      for (std::size_t j = 0; j < at; ++j) {
        if (all[at][j]) all[i][j] = before[i][j] = true;
      }
      if (edges == 1) before[i][at] = true;
    }
  }
  return before;
}

/// Returns the largest sum over turns of which none is before another. By Dilworth's theorem it is the sum of all less
/// the most that can flow from turns to turns behind them, each giving and taking its own value once.
std::int64_t largest_sum(const std::vector<std::int64_t>& values, const std::vector<std::vector<bool>>& before) {
  const std::size_t count = values.size();
  std::vector<std::int64_t> gives = values, takes = values;  // what is left of each turn's own
  std::vector<std::vector<std::int64_t>> flow(count, std::vector<std::int64_t>(count));  // [from][to]
  while (true) {
    // A search by breadth, from all that can still give: forth over `before`, and back over flow that can be undone.
    std::vector<std::size_t> queue, from_of(count, count), to_of(count, count);  // count: not reached
    for (std::size_t i = 0; i < count; ++i) {
      if (gives[i] == 0) continue;
      from_of[i] = i;
      queue.push_back(i);
    }
    std::size_t end = count;
    for (std::size_t next = 0; next < queue.size() && end == count; ++next) {
      const std::size_t from = queue[next];
      for (std::size_t to = 0; to < count && end == count; ++to) {
        if (!before[to][from] || to_of[to] != count) continue;
        to_of[to] = from;
        if (takes[to] > 0) end = to;
        for (std::size_t other = 0; other < count; ++other) {
          if (flow[other][to] == 0 || from_of[other] != count) continue;
          from_of[other] = to;
          queue.push_back(other);
        }
      }
    }
    if (end == count) break;
    const auto along = [&](const auto& step) {  // (from, to, whether flow is added) of the path's edges, backwards
      for (std::size_t to = end;;) {
        const std::size_t from = to_of[to];
        step(from, to, true);
        if (from_of[from] == from) return from;
        to = from_of[from];
        step(from, to, false);
      }
    };
    std::int64_t most = takes[end];
    const std::size_t start = along([&](std::size_t from, std::size_t to, bool adds) {
      if (!adds) most = std::min(most, flow[from][to]);
    });
    most = std::min(most, gives[start]);
    along([&](std::size_t from, std::size_t to, bool adds) { flow[from][to] += adds ? most : -most; });
    gives[start] -= most;
    takes[end] -= most;
  }
  return std::accumulate(gives.begin(), gives.end(), std::int64_t{0});
}

/// Returns the KV of all turns that may have a cache at the same time: turns that run, or (`ahead`) whose prompts are
/// also computed ahead, while the turns whose answers they wait for run. Each model's engine has its own.
std::int64_t peak(const Plan& plan, const std::vector<TurnPreview>& turns, bool ahead) {
  constexpr std::size_t kMostOrdered = 256;  // with more turns, the order is not considered: the largest turns count
  const bool tentative = may_begin_tentatively(*plan.reuse.method);  // has an exact cache in addition to its own
  std::map<std::string, std::vector<std::int64_t>> bytes;            // by model
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].kv_bytes == 0) continue;
    std::vector<std::int64_t>& of_model = bytes[plan.turns[i].model];
    of_model.resize(turns.size());
    of_model[i] = turns[i].kv_bytes * (ahead && tentative ? 2 : 1);
  }
  std::vector<std::vector<bool>> before;
  if (turns.size() <= kMostOrdered) before = turns_before(plan, ahead ? 2 : 1);
  const int limit = plan.spec->topology.max_parallel;
  std::int64_t sum = 0;
  for (auto& [model, of_model] : bytes) {
    const std::int64_t ordered =
        before.empty() ? std::numeric_limits<std::int64_t>::max() : largest_sum(of_model, before);
    std::sort(of_model.rbegin(), of_model.rend());
    std::size_t most = static_cast<std::size_t>(LocalEngineOptions{}.max_sequences);
    if (limit > 0) most = std::min(most, static_cast<std::size_t>(limit));
    if (ahead) most = of_model.size();
    most = std::min(most, of_model.size());
    sum += std::min(ordered, std::accumulate(of_model.begin(), of_model.begin() + static_cast<std::ptrdiff_t>(most),
                                             std::int64_t{0}));
  }
  return sum;
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
  const KvNeeds needs;
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
    }
    TurnPreview& added_turn =
        preview.turns.emplace_back(with_resource_errors([&] { return preview_of(turn, model, values, now); }));
    const ReuseOptions reuse = plan.reuse_of(turn);
    added_turn.kv_bytes = needs.bytes(model, turn, reuse, added_turn.prompt_tokens + added_turn.output_tokens);
    preview.kv_bytes_per_token = std::max(preview.kv_bytes_per_token, needs.token_bytes(model, turn, reuse));
  }
  preview.kv_peak_bytes = peak(plan, preview.turns, false);
  if (computes_ahead(*plan.reuse.method))
    preview.kv_ahead_bytes = peak(plan, preview.turns, true) - preview.kv_peak_bytes;
  preview.max_parallel = plan.spec->topology.max_parallel;
  return preview;
}

}  // namespace baton::inline v1
