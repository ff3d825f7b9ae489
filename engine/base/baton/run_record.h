// SPDX-License-Identifier: Apache-2.0
// RunRecord: what a run did, agent by agent and placeholder by placeholder. Plain data: with event.h and named_texts.h
// it is the vocabulary that every layer may include (docs/decisions/0003).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <baton/named_texts.h>
#include <baton/states.h>

namespace baton {

/// What the anchors said of one placeholder (method anchors).
struct SlotAnchors {
  int anchors = 0;              // that it was corrected by, or would have been
  double ambiguity = 0.0;       // entropy of their weights over log(anchors), 0 to 1
  double distance = 0.0;        // of the text from the nearest, per token: 0 equal, about 1 unrelated
  double predicted_error = -1;  // relative error of K and V that is expected of the correction; below 0: not known
};

/// What became of one placeholder of one agent's prompt.
struct SlotRecord {
  std::string name;  // "agent_analyst_current"
  std::int64_t tokens = 0;
  std::string method;  // full, prefix, direct, rectify, lockstep, anchors, ...
  std::int64_t reused_tokens = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t ahead_tokens = 0;  // of the recomputed ones: before all of the prompt was known (lockstep)
  double kv_reuse_rate = 0.0;     // share of (token, layer) entries not recomputed, 0 to 1
  double kv_reuse_bound = 0.0;  // the rate if no token had been chosen to be recomputed: what the method's layers allow
  int hops = 0;                 // approximate hand-overs behind this KV; 0: exact
  bool corrected = false;       // method rectify: by what `baton learn` found for this place
  std::string reason;           // why this method
  std::optional<SlotAnchors> anchors;
};

/// KV entries of one prompt; entries = prompt tokens x layers = reused + computed.
struct KvRecord {
  std::int64_t entries = 0;
  std::int64_t reused = 0;
  std::int64_t computed = 0;
  std::int64_t ahead = 0;  // of the computed ones: before all of the prompt was known, in steps of others (lockstep)
  double reuse_rate = 0.0;
};

/// One turn of one agent.
struct AgentRecord {
  std::string agent;
  std::string role;
  std::string model;  // its name in the workflow
  int round = 1;
  TurnState state = TurnState::ok;
  std::string error;  // why, when the state is not ok
  int attempts = 1;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  std::string output;  // of a failed turn with a fallback: the fallback
  std::string answer;  // what the agent's output.pattern or output.schema found in the output, or empty
  std::optional<FinishReason> finish_reason;  // none: nothing was generated
  bool truncated = false;                     // max_tokens, or the end of the context, cut the output off
  KvRecord kv;
  double ttft_ms = 0.0;  // from the last input being complete to the first token, everything included
  double prefill_ms = 0.0;
  double decode_ms = 0.0;
  double tokens_per_s = 0.0;  // of decode
  std::vector<SlotRecord> slots;
};

struct MemoryRecord {
  std::int64_t weights_bytes = 0;
  std::int64_t kv_peak_bytes = 0;
  std::int64_t segments_peak_bytes = 0;
  std::int64_t host_segments_peak_bytes = 0;  // of a device's segments, moved to host memory
  std::int64_t anchors_bytes = 0;             // of the pools, at the end
};

struct RunRecord {
  int schema = 1;
  std::string version;  // of the library that ran it, "0.1.0"
  std::string date;     // when the run started, UTC, ISO 8601: "2026-01-31T12:00:00Z"
  std::string workflow;
  RunState state = RunState::ok;
  std::string error;
  std::optional<ErrorKind> error_kind;  // of a failed run
  std::string model_path;
  std::string model_fingerprint;
  std::string device;
  int threads = 0;  // of the CPU that the first turn's model runs on
  std::string relay;
  std::uint64_t seed = 0;
  NamedTexts inputs;     // with the defaults, in the order of the workflow's file
  NamedTexts outputs;    // in the order of the workflow's file
  double load_ms = 0.0;  // opening the models of this run, whenever that was: earlier runs may have shared them
  double wall_ms = 0.0;  // of the run itself, without load_ms
  std::vector<AgentRecord> agents;
  MemoryRecord memory;

  /// The record as one JSON object (docs/cli.md gives the schema). Invalid UTF-8 becomes U+FFFD.
  std::string to_json(int indent = 2) const;
};

}  // namespace baton
