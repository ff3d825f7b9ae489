// SPDX-License-Identifier: Apache-2.0
#include <baton/event.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "workflows/run/json_record.h"

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_of_event(const RunStarted& event) {
  return {{"type", "run_started"}, {"workflow", event.workflow}, {"turns", event.turns}};
}

OrderedJson json_of_event(const AgentStarted& event) {
  return {{"type", "agent_started"},
          {"agent", event.agent},
          {"role", event.role},
          {"round", event.round},
          {"prompt_tokens", event.prompt_tokens}};
}

OrderedJson json_of_event(const Prefill& event) {
  return {{"type", "prefill"},
          {"agent", event.agent},
          {"round", event.round},
          {"kv", json_of(event.kv)},
          {"prefill_ms", finite(event.prefill_ms)}};
}

OrderedJson json_of_event(const Token& event) {
  return {{"type", "token"}, {"agent", event.agent}, {"round", event.round}, {"id", event.id}, {"text", event.text}};
}

OrderedJson json_of_event(const ToolCalled& event) {
  return {{"type", "tool_called"},  {"agent", event.agent},
          {"turn", event.turn},     {"round", event.round},
          {"tool", event.tool},     {"arguments", event.arguments},
          {"code", event.code},     {"ok", event.ok},
          {"result", event.result}, {"wall_ms", finite(event.wall_ms)}};
}

OrderedJson json_of_event(const AgentFinished& event) {
  return {{"type", "agent_finished"}, {"record", json_of(event.record)}};
}

OrderedJson json_of_event(const Relayed& event) {
  return {{"type", "relayed"},
          {"from", event.from},
          {"to", event.to},
          {"round", event.round},
          {"slot", json_of(event.slot)}};
}

OrderedJson json_of_event(const Warning& event) { return {{"type", "warning"}, {"message", event.message}}; }

OrderedJson json_of_event(const PrefillProgress& event) {
  return {{"type", "prefill_progress"},
          {"agent", event.agent},
          {"round", event.round},
          {"tokens", event.tokens},
          {"prompt_tokens", event.prompt_tokens}};
}

OrderedJson json_of_event(const TentativeToken& event) {
  return {{"type", "tentative_token"},
          {"agent", event.agent},
          {"round", event.round},
          {"id", event.id},
          {"text", event.text}};
}

OrderedJson json_of_event(const Confirmed& event) {
  return {{"type", "confirmed"},
          {"agent", event.agent},
          {"round", event.round},
          {"tokens", event.tokens},
          {"tentative", event.tentative}};
}

OrderedJson json_of_event(const Asked& event) {
  return {{"type", "asked"},      {"agent", event.agent},       {"turn", event.turn},
          {"round", event.round}, {"question", event.question}, {"choices", event.choices}};
}

OrderedJson json_of_event(const RunFinished& event) {
  return {{"type", "run_finished"}, {"record", json_of(event.record)}};
}

}  // namespace

std::string to_json(const Event& event, std::optional<double> t_ms) {
  OrderedJson json = std::visit([](const auto& typed) { return json_of_event(typed); }, event);
  if (t_ms) json["t_ms"] = finite(std::round(*t_ms * 1000) / 1000);  // microseconds
  return dump(json, -1);
}

}  // namespace baton
