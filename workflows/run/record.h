// SPDX-License-Identifier: Apache-2.0
// The record of a run and of its turns: what is filled in, and its JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "workflows/run/executor.h"
#include "workflows/run/run_progress.h"

#include <baton/run_record.h>

namespace baton {

/// One record for each slot that the prompt shows, in the plan's order.
std::vector<SlotRecord> slot_records(const RunProgress& state, std::size_t turn, const PlannedTurn& planned,
                                     const std::vector<PromptPart>& prompt);

/// Fills in how the engine handled the slots; a slot that occurs twice in the prompt has one record.
void fill_slots(std::vector<SlotRecord>& slots, const std::vector<PromptPart>& prompt, const std::vector<PartUse>& uses,
                std::int32_t layers);

std::int64_t token_count(const std::vector<PromptPart>& prompt);
KvRecord kv_record(const GenerationResult& result);

/// The times of an attempt; zero: the event did not happen.
struct TurnTimes {
  Clock::time_point ready{};  // the last input was complete
  Clock::time_point submitted{};
  Clock::time_point first_token{};
};

void fill_record(AgentRecord& record, const GenerationResult& result, const TurnTimes& times);

/// Adds what the generations before took, which called tools; `generations`: all of the turn.
void add_earlier(AgentRecord& record, const AgentRecord& earlier, int generations);

/// Fills in what is known of a run before its first turn.
void describe_run(RunRecord& record, const RunRequest& request);

/// Fills in the memory of the run's engines, and what the first of them runs on.
void describe_engines(RunRecord& record, const RunRequest& request);

/// The seed of one attempt: the same for the same run seed, turn and attempt, whatever else runs and in what order.
std::uint64_t attempt_seed(std::uint64_t run_seed, const std::string& turn, int attempt);

// The JSON forms of the records, shared by RunRecord::to_json and to_json(Event).

nlohmann::ordered_json json_of(const KvRecord& record);
nlohmann::ordered_json json_of(const SlotRecord& record);
nlohmann::ordered_json json_of(const AgentRecord& record);
nlohmann::ordered_json json_of(const RunRecord& record);

/// JSON has no NaN and no infinity: they become 0.
double finite(double value);

/// indent < 0: one line. Invalid UTF-8 becomes U+FFFD.
std::string dump(const nlohmann::ordered_json& json, int indent);

}  // namespace baton
