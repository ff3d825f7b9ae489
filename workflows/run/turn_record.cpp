// SPDX-License-Identifier: Apache-2.0
#include "workflows/run/turn_record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "engine/base/hash.h"
#include "engine/base/random.h"

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
  if (result.tentative_ms > 0.0)
    record.tentative_ms = milliseconds(times.submitted - times.ready) + result.tentative_ms;
  if (times.first_token != Clock::time_point{}) {
    record.ttft_ms = milliseconds(times.first_token - times.ready);
  } else if (result.ttft_ms > 0.0) {  // the first token was already the end
    record.ttft_ms = milliseconds(times.submitted - times.ready) + result.ttft_ms;
  }
  // decode_ms runs from the first token to the last: one token less than there are.
  if (record.output_tokens > 1 && record.decode_ms > 0.0) {
    record.tokens_per_s = static_cast<double>(record.output_tokens - 1) * 1000.0 / record.decode_ms;
  }
}

void add_earlier(AgentRecord& record, const AgentRecord& earlier, int generations) {
  record.prompt_tokens += earlier.prompt_tokens;
  record.output_tokens += earlier.output_tokens;
  record.kv.entries += earlier.kv.entries;
  record.kv.reused += earlier.kv.reused;
  record.kv.computed += earlier.kv.computed;
  record.kv.ahead += earlier.kv.ahead;
  if (record.kv.entries > 0)
    record.kv.reuse_rate = static_cast<double>(record.kv.reused) / static_cast<double>(record.kv.entries);
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
  const auto steps = static_cast<double>(record.output_tokens - generations);  // none leads to a first token
  record.tokens_per_s = steps > 0 && record.decode_ms > 0.0 ? steps * 1000.0 / record.decode_ms : 0.0;
}

void describe_run(RunRecord& record, const RunRequest& request) {
  const Plan& plan = *request.plan;
  record.version = request.version;
  record.date = utc_now();
  record.workflow = plan.spec->name;
  record.relay = plan.relay;
  record.seed = request.seed.value_or(plan.spec->defaults.seed.value_or(0));
  for (const InputSpec& input : plan.spec->inputs) {
    if (const auto given = request.inputs.find(input.name); given != request.inputs.end())
      record.inputs[input.name] = given->second;
  }
  record.load_ms = request.load_ms;
  record.measure_ms = request.measure_ms;
}

void describe_engines(RunRecord& record, const RunRequest& request) {
  const Plan& plan = *request.plan;
  std::vector<const InferenceEngine*> counted;
  record.memory = {};
  for (const auto& [name, engine] : request.engines) {
    if (std::find(counted.begin(), counted.end(), engine.get()) != counted.end()) continue;  // two names of one engine
    counted.push_back(engine.get());
    const EngineStats stats = engine->stats();
    record.memory.weights_bytes += stats.weights_bytes;
    record.memory.kv_peak_bytes += stats.kv_peak_bytes;
    record.memory.segments_peak_bytes += stats.segments.peak_bytes;
    record.memory.host_segments_peak_bytes += stats.segments.host_peak_bytes;
    record.memory.anchors_bytes += stats.method_bytes;
  }
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
  std::uint64_t hash = kFnvStart ^ run_seed;
  for (const char c : turn) hash = fnv1a(hash, static_cast<unsigned char>(c));
  return mixed_bits(hash + kSplitMixStep * static_cast<std::uint64_t>(attempt));
}

}  // namespace baton
