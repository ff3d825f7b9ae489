// SPDX-License-Identifier: Apache-2.0
// The JSON of records and events.
#include "workflows/run/record_json.h"

#include <baton/event.h>
#include <baton/run_record.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace baton {

using OrderedJson = nlohmann::ordered_json;

double finite(double value) { return std::isfinite(value) ? value : 0.0; }

OrderedJson known(double value) { return value < 0.0 ? OrderedJson(nullptr) : OrderedJson(finite(value)); }

std::string dump(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

/// In the order of the texts.
OrderedJson json_of(const NamedTexts& texts) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, text] : texts) json[name] = text;
  return json;
}

OrderedJson json_of(const KvRecord& record) {
  return {{"entries", record.entries},
          {"reused", record.reused},
          {"computed", record.computed},
          {"ahead", record.ahead},
          {"reuse_rate", finite(record.reuse_rate)}};
}

OrderedJson json_of(const SlotAnchors& anchors) {
  return {{"anchors", anchors.anchors},
          {"ambiguity", finite(anchors.ambiguity)},
          {"distance", finite(anchors.distance)},
          {"predicted_error", known(anchors.predicted_error)}};
}

OrderedJson json_of(const SlotRecord& record) {
  return {{"name", record.name},
          {"tokens", record.tokens},
          {"method", record.method},
          {"reused_tokens", record.reused_tokens},
          {"recomputed_tokens", record.recomputed_tokens},
          {"ahead_tokens", record.ahead_tokens},
          {"kv_reuse_rate", finite(record.kv_reuse_rate)},
          {"kv_reuse_bound", finite(record.kv_reuse_bound)},
          {"hops", record.hops},
          {"corrected", record.corrected},
          {"reason", record.reason},
          {"anchors", record.anchors ? json_of(*record.anchors) : OrderedJson(nullptr)}};
}

OrderedJson json_of(const std::vector<std::pair<std::string, double>>& probabilities) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [text, probability] : probabilities) json[text] = finite(probability);
  return json;
}

OrderedJson json_of(const ToolUse& use) {
  return {{"tool", use.tool},
          {"arguments", use.arguments},
          {"code", use.code},
          {"ok", use.ok},
          {"result", use.result},
          {"wall_ms", finite(use.wall_ms)},
          {"generation", use.generation}};
}

OrderedJson json_of(const std::optional<HistoryRecord>& history) {
  if (!history) return nullptr;
  return {{"runs", history->runs},
          {"forgotten", history->forgotten},
          {"tokens", history->tokens},
          {"continued", history->continued}};
}

OrderedJson json_of(const AgentRecord& record) {
  OrderedJson tools = OrderedJson::array();
  for (const ToolUse& use : record.tools) tools.push_back(json_of(use));
  OrderedJson slots = OrderedJson::array();
  for (const SlotRecord& slot : record.slots) slots.push_back(json_of(slot));
  return {{"agent", record.agent},
          {"turn", record.turn},
          {"role", record.role},
          {"model", record.model},
          {"round", record.round},
          {"state", name_of(record.state)},
          {"error", record.error},
          {"attempts", record.attempts},
          {"prompt_tokens", record.prompt_tokens},
          {"output_tokens", record.output_tokens},
          {"output", record.output},
          {"answer", record.answer},
          {"probabilities", json_of(record.probabilities)},
          {"tools", std::move(tools)},
          {"finish_reason", name_of(record.finish_reason)},
          {"truncated", record.truncated},
          {"kv", json_of(record.kv)},
          {"ttft_ms", finite(record.ttft_ms)},
          {"prefill_ms", finite(record.prefill_ms)},
          {"decode_ms", finite(record.decode_ms)},
          {"tokens_per_s", finite(record.tokens_per_s)},
          {"drafted_tokens", record.drafted_tokens},
          {"accepted_tokens", record.accepted_tokens},
          {"tentative_ms", finite(record.tentative_ms)},
          {"tentative_tokens", record.tentative_tokens},
          {"confirmed_tokens", record.confirmed_tokens},
          {"expected_nats", known(record.expected_nats)},
          {"guard_nats", known(record.guard_nats)},
          {"guard_change", known(record.guard_change)},
          {"slots", std::move(slots)},
          {"history", json_of(record.history)}};
}

OrderedJson json_of(const RunRecord& record) {
  OrderedJson agents = OrderedJson::array();
  for (const AgentRecord& agent : record.agents) agents.push_back(json_of(agent));
  OrderedJson servers = OrderedJson::array();
  for (const ServerRecord& server : record.servers) {
    servers.push_back({{"name", server.name},
                       {"title", server.title},
                       {"tools", server.tools},
                       {"start_ms", finite(server.start_ms)},
                       {"error", server.error}});
  }
  return {{"schema", record.schema},
          {"version", record.version},
          {"date", record.date},
          {"workflow", record.workflow},
          {"state", name_of(record.state)},
          {"error", record.error},
          {"error_kind", name_of(record.error_kind)},
          {"model", {{"path", record.model_path}, {"fingerprint", record.model_fingerprint}}},
          {"device", record.device},
          {"device_fallback", record.device_fallback},
          {"threads", record.threads},
          {"relay", record.relay},
          {"seed", record.seed},
          {"inputs", json_of(record.inputs)},
          {"outputs", json_of(record.outputs)},
          {"load_ms", finite(record.load_ms)},
          {"measure_ms", finite(record.measure_ms)},
          {"wall_ms", finite(record.wall_ms)},
          {"agents", std::move(agents)},
          {"servers", std::move(servers)},
          {"memory",
           {{"weights_bytes", record.memory.weights_bytes},
            {"kv_peak_bytes", record.memory.kv_peak_bytes},
            {"segments_peak_bytes", record.memory.segments_peak_bytes},
            {"host_segments_peak_bytes", record.memory.host_segments_peak_bytes},
            {"anchors_bytes", record.memory.anchors_bytes}}}};
}

std::string RunRecord::to_json(int indent) const { return dump(json_of(*this), indent); }

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
