// SPDX-License-Identifier: Apache-2.0
// Runs of one team: everything that its agents were given and answered, and where two runs differ.
#pragma once

#include <baton/event.h>
#include <baton/run_record.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "workflows/plan/plan.h"
#include "workflows/run/executor.h"

namespace baton::test {

/// A request that an agent's turn sent to the engine, and what came back.
struct TurnAnswer {
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> logits;  // a hash of those that each token was chosen from
  std::string text;
  FinishReason reason = FinishReason::eos;
  std::int64_t reused_tokens = 0;  // of the prompt, from prefixes and segments
  std::int64_t ahead_tokens = 0;   // of the prompt, computed before all of it was known
};

struct TeamAnswers {
  RunRecord record;
  std::vector<std::string> turns;                          // ids, in the order of the plan
  std::map<std::string, std::vector<TurnAnswer>> answers;  // by turn id: its attempts
  int events = 0;
  std::int32_t most_positions = 0;  // of a request's prompt and answer
};

struct TeamRun {
  std::shared_ptr<const Plan> plan;
  std::map<std::string, std::string> inputs;
  std::uint64_t seed = 0;
  bool logits = false;                                   // hash them; the engine then chooses tokens on the host
  std::map<std::string, std::vector<TokenId>> forced{};  // by turn id: its answer
  std::vector<AgentFinished> finished{};                 // of an earlier run
  SessionMemory* memory = nullptr;                       // of the session that the run belongs to; null: none
  std::stop_token stop{};
  EventCallback on_event{};
};

/// Runs on the calling thread.
TeamAnswers run_team(const std::shared_ptr<InferenceEngine>& engine, const TeamRun& run);

/// The first difference, in the order of the plan: the turn, the attempt, the index of the token. Empty: none. Turns
/// that are `forced` are not compared.
std::string first_difference(const TeamAnswers& expected, const TeamAnswers& found,
                             const std::map<std::string, std::vector<TokenId>>& forced = {});

}  // namespace baton::test
