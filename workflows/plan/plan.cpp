// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "workflows/format/placeholder.h"
#include "workflows/plan/ahead_forecast.h"

namespace baton {
namespace {

/// True where slots of one kind and turn may still have different texts.
bool has_own_text(const SlotSource& slot) {
  return slot.kind == SlotSource::Kind::input || slot.kind == SlotSource::Kind::agent_answer;
}

/// True for an output that a model writes, and for an answer that is the whole output.
bool is_decoded(const Plan& plan, const SlotSource& slot) {
  if (slot.kind != SlotSource::Kind::agent_output && slot.kind != SlotSource::Kind::agent_answer) return false;
  const PlannedTurn& author = plan.turns[static_cast<std::size_t>(slot.turn)];
  if (!author.is_written() || slot.kind == SlotSource::Kind::agent_output) return author.is_written();
  const AgentSpec* agent = plan.spec->agent(author.agent);
  return !slot.is_member() && agent != nullptr && agent->output.constrains() && agent->output.enforce;
}

/// The first turns that show each value, of those that were passed.
class FirstTurns {
 public:
  explicit FirstTurns(const Method& method) : any_model_(method.models) {}

  /// The turn whose KV of the slot a turn after those that were passed can have: its author, or the first that shows
  /// it. Null: there is none.
  const PlannedTurn* source_of(const Plan& plan, const PlannedTurn& reader, const SlotSource& slot) const {
    if (is_decoded(plan, slot)) return &plan.turns[static_cast<std::size_t>(slot.turn)];
    const auto first = first_.find(value_of(reader, slot));
    return first == first_.end() ? nullptr : &plan.turns[first->second];
  }

  void pass(const Plan& plan, std::size_t index) {
    for (const SlotSource& slot : plan.turns[index].slots) {
      if (!is_decoded(plan, slot) && slot.kind != SlotSource::Kind::empty)
        first_.try_emplace(value_of(plan.turns[index], slot), index);
    }
  }

 private:
  using Value = std::tuple<SlotSource::Kind, int, std::string, std::string>;  // kind, turn, name, model

  /// Equal where shows_source() says so, and, unless the method hands KV over between models, the model is the same.
  Value value_of(const PlannedTurn& turn, const SlotSource& slot) const {
    return {slot.kind, slot.turn, has_own_text(slot) ? slot.name : "", any_model_ ? "" : turn.model};
  }

  bool any_model_;
  std::map<Value, std::size_t> first_;
};

/// Where the method hands the slot over, fills in the slot's method and reason.
void forecast_hand_over(const Plan& plan, const FirstTurns& before, const PlannedTurn& reader, SlotSource& slot) {
  const PlannedTurn* source = before.source_of(plan, reader, slot);
  if (source == nullptr) {
    if (!plan.reuse.method->ahead) slot.reason = "computed here first";
    return;
  }
  const bool between = source->model != reader.model;
  if (between && !plan.reuse.method->models) {
    if (!plan.reuse.method->ahead) slot.reason = fmt::format("decoded by {}, of another model", source->id);
    return;
  }
  const std::string otherwise = plan.reuse.method->ahead && !slot.reason.empty() ? "; if exact: " + slot.reason : "";
  slot.method = &segment_method(plan.reuse);
  slot.reason = fmt::format("{} by {}{}{}", is_decoded(plan, slot) ? "decoded" : "computed", source->id,
                            between ? ", of another model" : "", otherwise);
}

/// Forecasts how each placeholder is handed over, as far as the plan can tell: lengths, memory and, with auto, the
/// model's profile decide in the run.
void forecast(Plan& plan) {
  const Method& method = *plan.reuse.method;
  forecast_ahead(plan.turns, [&](const PlannedTurn& turn) { return plan.reuse_of(turn).method->ahead; });
  const bool segments = takes_segments(plan.reuse);
  if (!segments && (method.ahead || method.prefixes == Method::Prefixes::never)) return;
  FirstTurns before(method);
  for (std::size_t i = 0; i < plan.turns.size(); ++i) {
    PlannedTurn& turn = plan.turns[i];
    if (!turn.has_prompt() || (turn.served && segments)) continue;
    for (SlotSource& slot : turn.slots) {
      if (slot.kind == SlotSource::Kind::empty) continue;
      if (!segments) {
        slot.reason = "exact where the prompt begins like one before it";
      } else if (!turn.exact || !method.ahead) {
        forecast_hand_over(plan, before, turn, slot);
      }
    }
    if (segments) before.pass(plan, i);
  }
}

/// The group of a reader, up to the last layer that one of the models needs whose answers it reads, and the larger
/// groups that all of them have.
void choose_group(const Plan& plan, const PlannedTurn& reader, ReuseOptions& options) {
  std::optional<std::vector<std::int32_t>> common;
  std::int32_t end = 0;
  for (const SlotSource& slot : reader.slots) {
    if (slot.kind != SlotSource::Kind::agent_output) continue;
    const auto found = plan.group_ends.find({plan.turns[static_cast<std::size_t>(slot.turn)].model, reader.model});
    if (found == plan.group_ends.end()) continue;
    const std::vector<std::int32_t>& ends = found->second;
    end = std::max(end, ends.front());
    std::vector<std::int32_t> both;
    if (common)
      std::set_intersection(common->begin(), common->end(), ends.begin(), ends.end(), std::back_inserter(both));
    common = common ? std::move(both) : ends;
  }
  if (!common) return;
  std::erase_if(*common, [&](std::int32_t larger) { return larger <= end; });
  options.range = LayerRange::group(options.range.start, end);
  options.group_ends = std::move(*common);
}

/// What differs where a server has the KV.
void describe_server(const Plan& plan, PlannedTurn& turn) {
  const Method& method = *plan.reuse.method;
  const std::string replaced = method.segments && !decides(method)
                                   ? fmt::format("; {} needs the KV, which the server keeps", method.name)
                                   : std::string();
  for (SlotSource& slot : turn.slots) {
    if (slot.kind == SlotSource::Kind::empty) continue;
    slot.reason += "; in the server's prefix cache, exact up to its numerics" + replaced;
  }
}

}  // namespace

bool SlotSource::is_member() const {
  if (kind != Kind::agent_answer) return false;
  const std::optional<Placeholder> placeholder = parse_placeholder(name);
  return placeholder && (placeholder->kind == Placeholder::Kind::probabilities || !placeholder->path.empty());
}

bool shows_source(const PlannedTurn& turn, const SlotSource& source) {
  return std::any_of(turn.slots.begin(), turn.slots.end(), [&](const SlotSource& slot) {
    if (slot.turn != source.turn) return false;
    const bool is_output = source.kind == SlotSource::Kind::agent_output;
    if (is_output && slot.kind == SlotSource::Kind::agent_answer) return !slot.is_member();  // it may be the output
    return slot.kind == source.kind && (!has_own_text(source) || slot.name == source.name);
  });
}

const SlotSource* PlannedTurn::slot(const std::string& name) const {
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const SlotSource& slot) { return slot.name == name; });
  return found == slots.end() ? nullptr : &*found;
}

std::unordered_map<std::string_view, const SlotSource*> slots_by_name(const PlannedTurn& turn) {
  std::unordered_map<std::string_view, const SlotSource*> out;
  for (const SlotSource& slot : turn.slots) out.try_emplace(slot.name, &slot);
  return out;
}

int Plan::last_turn_of(const std::string& agent, int round) const {
  for (int i = static_cast<int>(turns.size()) - 1; i >= 0; --i) {
    const PlannedTurn& turn = turns[static_cast<std::size_t>(i)];
    if (turn.agent == agent && turn.round == round) return i;
  }
  return -1;
}

ReuseOptions Plan::reuse_of(const PlannedTurn& turn) const {
  ReuseOptions options = reuse;
  if (!group_ends.empty()) choose_group(*this, turn, options);
  if (turn.served && options.method->segments) options.method = &method_of(MethodId::lockstep);  // which auto comes to
  if (turn.exact && options.method->id == MethodId::automatic) {
    options.tolerance = 0.0f;
    options.exact_because = "its reader is declared exact";
  }
  return options;
}

Plan make_plan(std::shared_ptr<const WorkflowSpec> spec, std::vector<PlannedTurn> turns) {
  Plan plan;
  plan.turns = std::move(turns);
  plan.reuse = spec->relay.options;
  plan.reuse.method = spec->relay.method;
  plan.relay = plan.reuse.method->name;
  plan.reuse.record = takes_segments(plan.reuse);
  plan.rounds = spec->topology.rounds;
  plan.spec = std::move(spec);
  forecast(plan);
  for (PlannedTurn& turn : plan.turns) {
    if (turn.served) describe_server(plan, turn);
  }
  return plan;
}

}  // namespace baton
