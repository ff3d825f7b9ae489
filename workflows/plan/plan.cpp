// SPDX-License-Identifier: Apache-2.0
#include "workflows/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "workflows/plan/ahead_forecast.h"

namespace baton {
namespace {

/// Forecasts how each placeholder is handed over, as far as the plan can tell: lengths and memory decide in the run.
void forecast(Plan& plan) {
  const Method& method = *plan.reuse.method;
  if (method.ahead) {
    forecast_ahead(plan.turns);
    return;
  }
  if (!method.segments && method.prefixes == Method::Prefixes::never) return;
  for (std::size_t i = 0; i < plan.turns.size(); ++i) {
    for (SlotSource& slot : plan.turns[i].slots) {
      if (slot.kind == SlotSource::Kind::empty) continue;
      if (!method.segments) {
        slot.reason = "exact where the prompt begins like one before it";
        continue;
      }
      const bool across = method.models;
      const auto first = std::find_if(
          plan.turns.begin(), plan.turns.begin() + static_cast<std::ptrdiff_t>(i), [&](const PlannedTurn& turn) {
            return shows_source(turn, slot) && (across || turn.model == plan.turns[i].model);
          });
      if (slot.kind == SlotSource::Kind::agent_output) {
        const PlannedTurn& author = plan.turns[static_cast<std::size_t>(slot.turn)];
        const bool between = author.model != plan.turns[i].model;
        slot.reason = fmt::format("decoded by {}{}", author.id, between ? ", of another model" : "");
        if (!between || across) slot.method = plan.reuse.method;
      } else if (first != plan.turns.begin() + static_cast<std::ptrdiff_t>(i)) {
        slot.method = plan.reuse.method;
        slot.reason = "computed by " + first->id;
      } else {
        slot.reason = "computed here first";
      }
    }
  }
}

}  // namespace

bool shows_source(const PlannedTurn& turn, const SlotSource& source) {
  return std::any_of(turn.slots.begin(), turn.slots.end(), [&](const SlotSource& slot) {
    return slot.kind == source.kind && slot.turn == source.turn &&
           (source.kind != SlotSource::Kind::input || slot.name == source.name);
  });
}

const SlotSource* PlannedTurn::slot(const std::string& name) const {
  const auto found =
      std::find_if(slots.begin(), slots.end(), [&](const SlotSource& slot) { return slot.name == name; });
  return found == slots.end() ? nullptr : &*found;
}

int Plan::last_turn_of(const std::string& agent, int round) const {
  for (int i = static_cast<int>(turns.size()) - 1; i >= 0; --i) {
    const PlannedTurn& turn = turns[static_cast<std::size_t>(i)];
    if (turn.agent == agent && turn.round == round) return i;
  }
  return -1;
}

Plan make_plan(std::shared_ptr<const WorkflowSpec> spec, std::vector<PlannedTurn> turns) {
  Plan plan;
  plan.turns = std::move(turns);
  const Method* asked = spec->relay.method;
  plan.relay = asked == nullptr ? "auto" : asked->name;
  plan.reuse = spec->relay.options;
  plan.reuse.method = asked == nullptr ? &method_of(MethodId::lockstep) : asked;
  plan.reuse.record = takes_segments(plan.reuse);
  forecast(plan);
  plan.rounds = spec->topology.rounds;
  plan.spec = std::move(spec);
  return plan;
}

}  // namespace baton
