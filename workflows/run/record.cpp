// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <set>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/json/record_fields.h"
#include "engine/base/random.h"

#include <baton/event.h>
#include <baton/run_record.h>

namespace baton {
namespace {

/// The numbers of a method as the record has them.
SlotAnchors described(const std::vector<NamedNumber>& numbers) {
  SlotAnchors slot;
  for (const NamedNumber& one : numbers) {
    if (one.name == "count") slot.anchors = static_cast<int>(one.value);
    if (one.name == "ambiguity") slot.ambiguity = one.value;
    if (one.name == "distance") slot.distance = one.value;
    if (one.name == "predicted_error") slot.predicted_error = one.value;
  }
  return slot;
}

std::string reason_of(const RunProgress& state, std::size_t turn, const SlotSource& source) {
  if (source.kind == SlotSource::Kind::empty) return "empty: there is no such round";
  if (state.lacks_output(turn, source)) return "empty: the agent has no output";
  return source.reason;
}

bool shows(const PlannedTurn& planned, const std::string& slot) {
  return std::any_of(planned.messages.begin(), planned.messages.end(), [&](const PromptMessage& message) {
    return std::any_of(message.pieces.begin(), message.pieces.end(),
                       [&](const PromptPiece& piece) { return piece.slot == slot; });
  });
}

/// "2026-01-31T12:00:00.250Z".
std::string utc_now() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const std::time_t second = std::chrono::system_clock::to_time_t(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(second), now.time_since_epoch().count() % 1000);
}

}  // namespace

std::vector<SlotRecord> slot_records(const RunProgress& state, std::size_t turn, const PlannedTurn& planned,
                                     const std::vector<PromptPart>& prompt) {
  std::vector<SlotRecord> records;
  for (const SlotSource& source : planned.slots) {
    if (!shows(planned, source.name)) continue;  // only a tool reads it
    SlotRecord record;
    record.name = source.name;
    for (const PromptPart& part : prompt) {
      if (part.slot == source.name) record.tokens += static_cast<std::int64_t>(part.tokens.size());
    }
    record.method = full_method().name;
    record.recomputed_tokens = record.tokens;
    record.reason = reason_of(state, turn, source);
    records.push_back(std::move(record));
  }
  return records;
}

void fill_slots(std::vector<SlotRecord>& slots, const std::vector<PromptPart>& prompt, const std::vector<PartUse>& uses,
                std::int32_t layers) {
  for (SlotRecord& slot : slots) {
    std::int64_t reused_entries = 0, reusable_entries = 0;
    std::int64_t reused_tokens = 0, ahead_tokens = 0;
    const Method* method = &full_method();
    for (std::size_t i = 0; i < prompt.size() && i < uses.size(); ++i) {
      if (prompt[i].slot != slot.name) continue;
      reused_entries += uses[i].kv_reused;
      reusable_entries += uses[i].kv_reusable;
      reused_tokens += uses[i].reused_tokens;
      ahead_tokens += uses[i].ahead_tokens;
      method = uses[i].method;
      slot.hops = std::max(slot.hops, uses[i].hops);
      slot.corrected = slot.corrected || uses[i].corrected;
      if (!uses[i].reason.empty()) slot.reason = uses[i].reason;
      if (!uses[i].numbers.empty()) slot.anchors = described(uses[i].numbers);
    }
    slot.method = method->name;
    if (slot.tokens == 0) continue;
    slot.reused_tokens = reused_tokens;
    slot.recomputed_tokens = slot.tokens - reused_tokens;
    slot.ahead_tokens = ahead_tokens;
    if (computes_ahead(*method) && ahead_tokens == 0)  // the plan promised more
      slot.reason = "not reached ahead: the steps of the agents before it had no room left";
    const auto entries = static_cast<double>(slot.tokens * layers);
    slot.kv_reuse_rate = static_cast<double>(reused_entries) / entries;
    slot.kv_reuse_bound = static_cast<double>(reusable_entries) / entries;
  }
}

std::int64_t token_count(const std::vector<PromptPart>& prompt) {
  std::int64_t count = 0;
  for (const PromptPart& part : prompt) count += static_cast<std::int64_t>(part.tokens.size());
  return count;
}

KvRecord kv_record(const GenerationResult& result) {
  KvRecord kv;
  kv.entries = result.kv_entries;
  kv.computed = result.kv_computed;
  kv.reused = kv.entries - kv.computed;
  kv.ahead = result.kv_ahead;
  kv.reuse_rate = kv.entries > 0 ? static_cast<double>(kv.reused) / static_cast<double>(kv.entries) : 0.0;
  kv.stored_tokens = result.stored_tokens;
  kv.stored_ms = result.stored_ms;
  return kv;
}

void fill_record(AgentRecord& record, const GenerationResult& result, const TurnTimes& times) {
  record.output_tokens =
      result.output_tokens >= 0 ? result.output_tokens : static_cast<std::int64_t>(result.tokens.size());
  record.output = result.text;
  record.finish_reason = result.reason;
  record.truncated = result.reason == FinishReason::length;
  if (result.prompt_tokens > 0) record.prompt_tokens = result.prompt_tokens;
  record.kv = kv_record(result);
  record.prefill_ms = result.prefill_ms;
  record.decode_ms = result.decode_ms;
  record.drafted_tokens = result.drafted_tokens;
  record.accepted_tokens = result.accepted_tokens;
  record.tentative_tokens = result.tentative_tokens;
  record.confirmed_tokens = result.confirmed_tokens;
  record.expected_nats = result.expected_nats;
  record.guard_nats = result.guard_nats;
  record.guard_change = result.guard_left;
  record.decisions = result.decisions;
  record.decisions_exact = result.decisions_exact;
  record.decisions_changed = result.decisions_changed;
  if (result.tentative_ms > 0.0)
    record.tentative_ms = milliseconds(times.submitted - times.ready) + result.tentative_ms;
  if (times.first_token != Clock::time_point{}) {
    record.ttft_ms = milliseconds(times.first_token - times.ready);
  } else if (result.ttft_ms > 0.0) {  // the first token was already the end
    record.ttft_ms = milliseconds(times.submitted - times.ready) + result.ttft_ms;
  }
  // decode_ms runs from the first token to the last: one token less than there are.
  const std::int64_t decoded = record.output_tokens + result.thinking_tokens;
  if (decoded > 1 && record.decode_ms > 0.0)
    record.tokens_per_s = static_cast<double>(decoded - 1) * 1000.0 / record.decode_ms;
}

void add_earlier(AgentRecord& record, const AgentRecord& earlier, int generations) {
  record.prompt_tokens += earlier.prompt_tokens;
  record.output_tokens += earlier.output_tokens;
  record.kv.entries += earlier.kv.entries;
  record.kv.reused += earlier.kv.reused;
  record.kv.computed += earlier.kv.computed;
  record.kv.ahead += earlier.kv.ahead;
  record.kv.stored_tokens += earlier.kv.stored_tokens;
  record.kv.stored_ms += earlier.kv.stored_ms;
  if (record.kv.entries > 0)
    record.kv.reuse_rate = static_cast<double>(record.kv.reused) / static_cast<double>(record.kv.entries);
  record.thinking_tokens += earlier.thinking_tokens;
  if (!earlier.thinking.empty())
    record.thinking = earlier.thinking + (record.thinking.empty() ? "" : "\n\n") + record.thinking;
  record.prefill_ms += earlier.prefill_ms;
  record.decode_ms += earlier.decode_ms;
  record.ttft_ms = earlier.ttft_ms;
  record.drafted_tokens += earlier.drafted_tokens;
  record.accepted_tokens += earlier.accepted_tokens;
  record.tentative_ms = earlier.tentative_ms;
  record.tentative_tokens += earlier.tentative_tokens;
  record.confirmed_tokens += earlier.confirmed_tokens;
  record.expected_nats = earlier.expected_nats;
  record.guard_nats = earlier.guard_nats;
  record.guard_change = earlier.guard_change;
  record.decisions += earlier.decisions;
  record.decisions_exact += earlier.decisions_exact;
  record.decisions_changed += earlier.decisions_changed;
  const auto steps = static_cast<double>(record.output_tokens - generations);  // none leads to a first token
  record.tokens_per_s = steps > 0 && record.decode_ms > 0.0 ? steps * 1000.0 / record.decode_ms : 0.0;
}

namespace {

/// Of each engine once, however many names it has.
std::vector<EngineStats> stats_of_engines(const RunRequest& request) {
  std::set<const InferenceEngine*> counted;
  std::vector<EngineStats> stats;
  for (const auto& [name, engine] : request.engines) {
    if (counted.insert(engine.get()).second) stats.push_back(engine->stats());
  }
  return stats;
}

}  // namespace

void describe_run(RunRecord& record, const RunRequest& request) {
  const Plan& plan = *request.plan;
  record.version = request.version;
  record.date = utc_now();
  record.workflow = plan.spec->name;
  record.relay = plan.relay;
  if (request.local_seconds) record.local_time = local_time_text(*request.local_seconds);
  record.seed = request.seed.value_or(plan.spec->defaults.seed.value_or(0));
  for (const InputSpec& input : plan.spec->inputs) {
    if (const auto given = request.inputs.find(input.name); given != request.inputs.end())
      record.inputs[input.name] = given->second;
  }
  record.load_ms = request.load_ms;
  record.measure_ms = request.measure_ms;
  for (const EngineStats& stats : stats_of_engines(request)) {  // describe_engines adds what they are at the end
    record.measured_turns -= stats.measured_turns;
    record.measured_ms -= stats.measured_ms;
  }
}

void describe_engines(RunRecord& record, const RunRequest& request) {
  const Plan& plan = *request.plan;
  record.memory = {};
  for (const EngineStats& stats : stats_of_engines(request)) {
    record.measured_turns += stats.measured_turns;
    record.measured_ms += stats.measured_ms;
    record.memory.weights_bytes += stats.weights_bytes;
    record.memory.kv_peak_bytes += stats.kv_peak_bytes;
    record.memory.segments_peak_bytes += stats.segments.peak_bytes;
    record.memory.host_segments_peak_bytes += stats.segments.host_peak_bytes;
    record.memory.method_bytes += stats.method_bytes;
  }
  record.engines.clear();
  for (const auto& [name, engine] : request.engines) record.engines[name] = engine->info().device_description;
  const auto first_turn =
      std::find_if(plan.turns.begin(), plan.turns.end(), [](const PlannedTurn& turn) { return turn.has_prompt(); });
  if (first_turn == plan.turns.end()) return;
  const auto found = request.engines.find(first_turn->model);
  if (found == request.engines.end()) return;  // stopped while models were opened
  const InferenceEngine& first = *found->second;
  record.model_path = first.text().path.string();
  record.model_fingerprint = first.text().fingerprint;
  record.device = first.info().device;
  record.device_fallback = first.info().device_fallback;
  record.threads = first.info().threads;
}

std::uint64_t attempt_seed(std::uint64_t run_seed, const std::string& turn, int attempt) {
  // The run's seed is mixed first: next to one letter of a turn's name, 1 and 2 would change places.
  const std::uint64_t hash = hash_bytes(turn.data(), turn.size(), mixed_bits(run_seed + kSplitMixStep));
  return mixed_bits(hash + kSplitMixStep * static_cast<std::uint64_t>(attempt));
}

// The JSON of records and events.

using OrderedJson = nlohmann::ordered_json;

double finite(double value) { return std::isfinite(value) ? value : 0.0; }

std::string dump(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

/// In the order of the texts.
OrderedJson json_of(const NamedTexts& texts) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, text] : texts) json[name] = text;
  return json;
}

namespace {

/// Writes the fields of a record, by the table in engine/base/json/record_fields.h.
class RecordWriter {
 public:
  template <class Record>
  static OrderedJson written(const Record& record) {
    RecordWriter writer;
    FieldsOf<Record>::visit(writer, record);
    return std::move(writer.json_);
  }

  void text(const char* name, const std::string& value, const char* = nullptr) { json_[name] = value; }
  void id(const char* name, const std::string& value) { json_[name] = value; }
  void turn_id(const char* name, const std::string& value) { json_[name] = value; }
  void count(const char* name, std::int64_t value, std::int64_t = 0) { json_[name] = value; }
  void round(const char* name, int value) { json_[name] = value; }
  void number(const char* name, double value, double = 0) { json_[name] = finite(value); }
  void share(const char* name, double value, double = 0) { json_[name] = finite(value); }
  void known(const char* name, double value) {
    json_[name] = value < 0.0 ? OrderedJson(nullptr) : OrderedJson(finite(value));
  }
  void truth(const char* name, bool value, bool = false) { json_[name] = value; }
  template <class Word>
  void word(const char* name, Word value) {
    json_[name] = name_of(value);
  }
  template <class Word>
  void word_or_null(const char* name, const Word& value) {
    json_[name] = name_of(value);
  }
  template <class Record>
  void object(const char* name, const Record& record) {
    json_[name] = written(record);
  }
  template <class Record>
  void object_or_null(const char* name, const std::optional<Record>& record) {
    json_[name] = record ? written(*record) : OrderedJson(nullptr);
  }
  template <class Record>
  void list(const char* name, const std::vector<Record>& records) {
    OrderedJson& json = json_[name] = OrderedJson::array();
    for (const Record& record : records) json.push_back(written(record));
  }
  template <class Record>
  void list_or_none(const char* name, const std::vector<Record>& records) {
    list(name, records);
  }
  void shares(const char* name, const std::vector<std::pair<std::string, double>>& shares) {
    OrderedJson& json = json_[name] = OrderedJson::object();
    for (const auto& [text, share] : shares) json[text] = finite(share);
  }
  void schema(const char* name, int value) { json_[name] = value; }
  void unsigned_number(const char* name, std::uint64_t value) { json_[name] = value; }
  void bytes(const char* name, std::int64_t value, double = 0) { json_[name] = value; }
  void texts(const char* name, const NamedTexts& texts) { json_[name] = json_of(texts); }
  void texts_or_none(const char* name, const NamedTexts& texts) { json_[name] = json_of(texts); }
  template <class Visit>
  void group(const char* name, const Visit& visit) {
    RecordWriter inner;
    visit(inner);
    json_[name] = std::move(inner.json_);
  }

 private:
  OrderedJson json_ = OrderedJson::object();
};

}  // namespace

OrderedJson json_of(const KvRecord& record) { return RecordWriter::written(record); }
OrderedJson json_of(const SlotRecord& record) { return RecordWriter::written(record); }
OrderedJson json_of(const AgentRecord& record) { return RecordWriter::written(record); }

OrderedJson json_of(const RunRecord& record) { return RecordWriter::written(record); }

std::string RunRecord::to_json(int indent) const { return dump(json_of(*this), indent); }

namespace {

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
  OrderedJson json = {
      {"type", "token"}, {"agent", event.agent}, {"round", event.round}, {"id", event.id}, {"text", event.text}};
  if (!event.chance) return json;
  json["logprob"] = finite(event.chance->logprob);
  json["top"] = OrderedJson::array();
  for (const TokenChance& one : event.top)
    json["top"].push_back({{"id", one.id}, {"text", one.bytes}, {"logprob", finite(one.logprob)}});
  return json;
}

OrderedJson json_of_event(const ToolCalled& event) {
  return {{"type", "tool_called"},  {"agent", event.agent},
          {"turn", event.turn},     {"round", event.round},
          {"tool", event.tool},     {"arguments", event.arguments},
          {"code", event.code},     {"ok", event.ok},
          {"result", event.result}, {"wall_ms", finite(event.wall_ms)},
          {"call", event.call}};
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

OrderedJson json_of_event(const Warning& event) {
  return {{"type", "warning"},
          {"code", name_of(event.code)},
          {"agent", event.agent},
          {"turn", event.turn},
          {"message", event.message}};
}

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

OrderedJson json_of_event(const ThinkingToken& event) {
  return {{"type", "thinking_token"},
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
  OrderedJson json = {{"type", "asked"},      {"agent", event.agent},       {"turn", event.turn},
                      {"round", event.round}, {"question", event.question}, {"choices", event.choices}};
  if (event.tool.empty()) return json;
  json["tool"] = event.tool;
  json["arguments"] = event.arguments;
  return json;
}

OrderedJson json_of_event(const CallDecided& event) {
  return {{"type", "call_decided"}, {"agent", event.agent}, {"turn", event.turn},           {"round", event.round},
          {"call", event.call},     {"tool", event.tool},   {"arguments", event.arguments}, {"answer", event.answer}};
}

OrderedJson json_of_event(const CallBegun& event) {
  return {{"type", "call_begun"}, {"agent", event.agent}, {"turn", event.turn},          {"round", event.round},
          {"call", event.call},   {"tool", event.tool},   {"arguments", event.arguments}};
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
