// SPDX-License-Identifier: Apache-2.0
// RunRecord: the record of a run, agent by agent and placeholder by placeholder. Plain data: together with event.h and
// named_texts.h it is the vocabulary that every layer may include (docs/decisions/structure.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <baton/named_texts.h>
#include <baton/states.h>

namespace baton {

/// How the anchors judged the text of one placeholder (method anchors).
struct SlotAnchors {
  int anchors = 0;              // anchors that corrected the text, or would have corrected it
  double ambiguity = 0.0;       // entropy of the anchors' weights over log(anchors), 0 to 1
  double distance = 0.0;        // distance from the nearest anchor per token: 0 equal, about 1 unrelated
  double predicted_error = -1;  // expected relative error of the corrected K and V; below 0: unknown
};

/// How the KV of one placeholder of one agent's prompt was obtained.
struct SlotRecord {
  std::string name;  // "agent_analyst_current"
  std::int64_t tokens = 0;
  std::string method;  // full, prefix, direct, rectify, lockstep, anchors, ...
  std::int64_t reused_tokens = 0;
  std::int64_t recomputed_tokens = 0;
  std::int64_t ahead_tokens = 0;  // recomputed tokens from before all of the prompt was known (lockstep)
  double kv_reuse_rate = 0.0;     // fraction of (token, layer) entries not recomputed, 0 to 1
  double kv_reuse_bound = 0.0;    // upper bound of the rate: the method chooses no token to recompute
  int hops = 0;                   // number of approximate hand-overs in this KV's history; 0: exact
  bool corrected = false;         // method rectify: a correction from `baton-lab learn` was added
  std::string reason;             // why this method was used
  std::optional<SlotAnchors> anchors;
};

/// KV entries of one prompt; entries = prompt tokens x layers = reused + computed.
struct KvRecord {
  std::int64_t entries = 0, reused = 0, computed = 0;
  std::int64_t ahead = 0;  // computed entries from before all of the prompt was known (lockstep)
  double reuse_rate = 0.0;
  std::int64_t stored_tokens = 0;  // tokens of the prompt whose KV came from the store (`relay.store`)
  double stored_ms = 0.0;          // that the prompt waited for it
};

/// One use of a tool: before the prompt, or by a call of the model.
struct ToolUse {
  std::string tool;
  std::string arguments;  // of a call by the model: a JSON object; "" before the prompt, and for an unreadable call
  std::string code;       // that was run, if any
  bool ok = true;
  std::string result;
  double wall_ms = 0.0;
  int generation = 0;         // the number of the model's output that holds the call; 0: before the prompt
  std::int64_t left_out = 0;  // bytes of the result that the model did not get: it was too long
  std::string summary{};      // what the model got in place of the result
};

/// What an agent remembered of earlier runs of its session.
struct HistoryRecord {
  int runs = 0;                // runs that its prompt holds
  int forgotten = 0;           // runs that it held before this turn
  std::int64_t tokens = 0;     // of these runs, at the beginning of the prompt; 0 where some were forgotten
  std::int64_t continued = 0;  // of these tokens: those whose KV was still there
};

/// One turn of one agent. Where the model called tools, tokens, KV and times are sums over all prompts of the turn, and
/// `slots` are those of the first.
struct AgentRecord {
  std::string agent, role;
  std::string model;  // the model's name in the workflow
  int round = 1;
  TurnState state = TurnState::ok;
  std::string error;  // the cause, when the state is not ok
  int attempts = 1;
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  std::string output;  // the fallback, for a failed turn that has one
  std::string answer;  // the part of the output that output.pattern or output.schema selects, or empty
  std::vector<std::pair<std::string, double>> probabilities;  // output.choose: of each text, in the file's order
  std::vector<ToolUse> tools;                                 // in the order in which they ran
  std::optional<FinishReason> finish_reason;                  // empty: nothing was generated
  bool truncated = false;  // the output was cut off by max_tokens or by the end of the context
  KvRecord kv;
  double ttft_ms = 0.0;  // from the completion of the last input to the first token
  double prefill_ms = 0.0, decode_ms = 0.0;
  double tokens_per_s = 0.0;          // decode speed
  std::int64_t drafted_tokens = 0;    // tokens that ran as drafts
  std::int64_t accepted_tokens = 0;   // drafted tokens that are in the answer
  double tentative_ms = 0.0;          // verified: from the last input to the first tentative token; 0: none
  std::int64_t tentative_tokens = 0;  // written before the prompt had exact KV
  std::int64_t confirmed_tokens = 0;  // tentative tokens that are in the answer
  // Of prompts with rectified texts; below 0: unknown, or nothing was rectified.
  double expected_nats = -1;   // auto: the divergence from full prefill by the model's levels, nats per token
  double guard_nats = -1;      // auto: that of this prompt, by its guard; above the tolerance it was computed in full
  double guard_change = -1;    // what the guard measured: mean squared change of the values that were not recomputed
  std::int64_t decisions = 0;  // auto: choices, and tokens of few that a constraint allowed, on handed-over KV
  std::int64_t decisions_exact = 0;    // of these: so near that they were made again on exact KV
  std::int64_t decisions_changed = 0;  // of these: with another outcome
  std::vector<SlotRecord> slots;
  std::optional<HistoryRecord> history;  // in sessions, where the agent remembers something
  std::string turn{};                    // the turn's id in the workflow, "analyst#2"; empty: an older version's record
  std::string thinking{};                // what the model thought before the output
  std::int64_t thinking_tokens = 0;      // of it, with its markers; not in output_tokens
};

/// A server of `mcp`.
struct ServerRecord {
  std::string name;
  std::string title;      // what it says of itself, "docs 1.2"
  int tools = 0;          // that it has
  double start_ms = 0.0;  // 0: it ran already
  std::string error;      // why it could not be started, or answers no more
};

/// Bytes that the models of the run held.
struct MemoryRecord {
  std::int64_t weights_bytes = 0, kv_peak_bytes = 0, segments_peak_bytes = 0;
  std::int64_t host_segments_peak_bytes = 0;  // segments in the host tier of a device
  std::int64_t method_bytes = 0;              // what methods have learned, at the end of the run
};

/// Warnings of one kind about one turn, or about the run.
struct WarningRecord {
  WarningCode code = WarningCode::other;
  std::string agent, turn;  // empty: about the run
  std::string message;      // the first one's text
  int count = 1;
};

/// What a run did, and what became of it.
struct RunRecord {
  int schema = 1;
  std::string version;     // of the library that ran it, "0.1.0"
  std::string date;        // when the run started, UTC, ISO 8601: "2026-01-31T12:00:00.250Z"
  std::string local_time;  // what chat templates showed as now: "2026-01-31T13:00:00", on the host's clock
  std::string workflow;
  RunState state = RunState::ok;
  std::string error;
  std::optional<ErrorKind> error_kind;  // set for a failed run
  std::string model_path, model_fingerprint;
  std::string device, device_fallback;  // the second: why `auto` took the CPU although a GPU is there, or empty
  int threads = 0;                      // of the CPU that the first turn's model runs on
  NamedTexts engines{};                 // by model: the processor, or the server with its version and address
  std::string relay;
  std::uint64_t seed = 0;
  NamedTexts inputs;        // with the defaults, in the order of the workflow's file
  NamedTexts outputs;       // in the order of the workflow's file
  double load_ms = 0.0;     // opening the models of this run, whenever that was: earlier runs may have shared them
  double measure_ms = 0.0;  // measuring the models before this run, at their first use by its relay method
  double wall_ms = 0.0;     // of the run itself, without load_ms and measure_ms
  std::int64_t measured_turns = 0;  // auto: turns that its models' engines measured meanwhile
  double measured_ms = 0.0;         // by how much longer their steps were for that; in wall_ms
  std::vector<AgentRecord> agents;
  std::vector<ServerRecord> servers;
  std::vector<WarningRecord> warnings;  // in the order of the first of each kind; at most 256
  MemoryRecord memory;
  std::string record_error;  // why RunOptions::record was not written, or empty; not in the JSON

  /// Returns the record as one JSON object (docs/cli.md has the schema). Invalid UTF-8 becomes U+FFFD.
  std::string to_json(int indent = 2) const;
};

}  // namespace baton
