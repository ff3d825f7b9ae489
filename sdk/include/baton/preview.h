// SPDX-License-Identifier: Apache-2.0
// A workflow's prompts and their memory needs, before anything runs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <baton/run_record.h>

namespace baton::inline v1 {

/// What is known before the run. Every other slot is unknown.
struct PreviewOptions {
  std::map<std::string, std::string> inputs{};
  std::map<std::string, std::string> values{};  // by slot name, for every turn; takes precedence over the other members
  const RunRecord* record = nullptr;            // outputs of agents, from a run of this workflow
  std::map<std::string, std::string> tool_results{};  // by TurnInfo::id: "inspector", in later rounds "inspector#2"
  std::string local_time{};                           // as RunOptions::local_time; empty: the record's, or now
};

/// A part of a prompt: fixed text, chat template included, or a slot.
struct PreviewPart {
  std::string slot;   // empty for fixed text
  bool known = true;  // false: the slot's value is unknown; text and tokens are empty
  std::string text;
  std::vector<std::int32_t> tokens;
  std::int64_t most_tokens = 0;  // for an unknown slot the bound, 0 without one; for a known slot the number of tokens
};

struct TurnPreview {
  std::string agent;
  int round = 1;
  std::string model_path;
  std::string dtype, activations;  // types of the model's weights, and of their products (docs/yaml.md, "A model")
  std::vector<PreviewPart> prompt;
  bool complete = false;           // every slot is known
  std::int64_t prompt_tokens = 0;  // at most, where every unknown slot has a bound
  std::int64_t output_tokens = 0;  // at most
  std::int64_t kv_bytes = 0;       // for that prompt and output
  std::int64_t context = 0;        // the model's context in tokens
  std::string turn{};              // TurnInfo::id
  std::string note{};              // what is done to its messages since the chat template does not take all of them
  std::string error{};             // why there is no prompt: the chat template refuses a message

  std::string text() const;  // unknown slots as {{ name }}
};

struct Preview {
  std::vector<TurnPreview> turns;       // as Workflow::turns()
  std::int64_t kv_bytes_per_token = 0;  // for the largest model
  std::int64_t kv_peak_bytes = 0;       // all turns that may run concurrently, each as the engine reserves it
  std::int64_t kv_ahead_bytes = 0;      // prompts that lockstep computes ahead alongside them, if memory allows
  int max_parallel = 0;                 // turns that may run concurrently; 0: no limit
};

}  // namespace baton::inline v1
