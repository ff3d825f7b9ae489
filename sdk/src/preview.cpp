// SPDX-License-Identifier: Apache-2.0
// Previews: the prompts of a plan's turns as far as their values are known, and the KV cache that they need.
#include <algorithm>

#include "agents/prompts/prompt.h"
#include "sdk/src/internal.h"
#include "workflows/format/placeholder.h"

namespace baton::inline v1 {
namespace {

bool is_of(const AgentRecord& record, const PlannedTurn& turn) {
  return record.turn.empty() ? record.agent == turn.agent && record.round == turn.round : record.turn == turn.id;
}

std::int64_t kv_bytes_per_token(const Model& model) {
  const std::int64_t element = model.options.kv_dtype == DType::f32 ? 4 : 2;
  return 2 * std::int64_t{model.config.layers} * model.config.kv_heads * model.config.head_dim * element;
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

/// What a preview needs of a model.
struct ShownModel {
  std::shared_ptr<const Model> local;       // null: it is on a server
  std::shared_ptr<InferenceEngine> served;  // null: it is not
  std::int64_t kv_bytes = 0;                // of a token; 0: the server has them
  std::string dtype, activations;

  const ModelText& text() const { return served ? served->text() : *local; }
  std::int32_t context() const { return served ? served->info().context : local->options.context; }
};

TurnPreview preview_of(const PlannedTurn& turn, const ShownModel& shown_model, const Values& values) {
  const ModelText& model = shown_model.text();
  // Slots without tokens have no part in a prompt, so an unknown one gets one for now.
  std::map<std::string, std::int64_t> unknown;
  const auto value = [&](const std::string& name) -> std::vector<TokenId> {
    const SlotSource* slot = turn.slot(name);
    const auto text = slot == nullptr ? std::nullopt : values.text(*slot);
    if (text) return text->empty() ? std::vector<TokenId>() : model.tokenizer->encode(*text, SpecialTokens::as_text);
    unknown[name] = slot == nullptr ? 0 : values.bound(*slot);
    return {0};
  };
  const auto parts = build_prompt(model, turn.messages, value, turn.calls.get());

  TurnPreview preview;
  preview.turn = turn.id;
  preview.agent = turn.agent;
  preview.round = turn.round;
  preview.model_path = model.path.string();
  preview.dtype = shown_model.dtype;
  preview.activations = shown_model.activations;
  preview.complete = unknown.empty() && (!turn.calls || turn.calls->servers().empty());  // whose tools are not known
  preview.context = shown_model.context();
  for (const auto& part : parts) {
    PreviewPart shown;
    shown.slot = part.slot;
    const auto bound = unknown.find(part.slot);
    shown.known = part.slot.empty() || bound == unknown.end();
    if (shown.known) {
      shown.tokens = part.tokens;
      shown.text = prompt_text(model, {part});
    }
    shown.most_tokens = shown.known ? static_cast<std::int64_t>(part.tokens.size()) : bound->second;
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

Preview make_preview(const Workflow& workflow, const PreviewOptions& options, const std::string& replacement_model) {
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
    preview.turns.push_back(with_resource_errors([&] { return preview_of(turn, model, values); }));
    preview.kv_bytes_per_token = std::max(preview.kv_bytes_per_token, model.kv_bytes);
  }
  preview.kv_peak_bytes = peak(plan, preview.turns);
  preview.kv_ahead_bytes = ahead(plan, preview.turns);
  preview.max_parallel = plan.spec->topology.max_parallel;
  return preview;
}

}  // namespace baton::inline v1
