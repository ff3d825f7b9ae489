// SPDX-License-Identifier: Apache-2.0
// Typed events of a run, in the order in which they happen. Plain data, part of the vocabulary (see run_record.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <baton/run_record.h>
#include <baton/tool_call.h>

namespace baton {

struct RunStarted {
  std::string workflow;
  int turns = 0;  // number of planned agent turns
};

/// A turn's prompt is known, and begins to be computed.
struct AgentStarted {
  std::string agent, role;
  int round = 1;
  std::int64_t prompt_tokens = 0;
};

/// The prompt is in the KV cache; the first token follows.
struct Prefill {
  std::string agent;
  int round = 1;
  KvRecord kv;
  double prefill_ms = 0.0;
};

/// A token that could have come, and the logarithm of its probability before any setting of sampling.
struct TokenChance {
  std::int32_t id = 0;
  std::string bytes;  // may end inside of a character
  double logprob = 0.0;
};

struct Token {
  std::string agent;
  int round = 1;
  std::int32_t id = 0;
  std::string text;  // the text that became final with this token; may be empty
  /// Set if RunOptions::top_logprobs is: the token itself, and the likeliest ones in descending order.
  std::optional<TokenChance> chance{};
  std::vector<TokenChance> top{};
};

/// A tool has returned. After a call by the model, the tokens so far were the call, and those that follow are another,
/// or the answer.
struct ToolCalled {
  std::string agent;
  int round = 1;
  std::string tool;
  bool ok = true;
  std::string result;
  double wall_ms = 0.0;
  std::string arguments, code;  // as in ToolUse
  std::string turn{};           // as in AgentRecord
  int call = 0;                 // the number of the model's call in its turn, from 1; 0: before the prompt
};

struct AgentFinished {
  AgentRecord record;
  int turn = -1;                       // index into Workflow::turns()
  std::vector<std::int32_t> tokens{};  // of the output; empty: only its text moves on
};

/// An agent's output was handed to a placeholder downstream.
struct Relayed {
  std::string from, to;
  int round = 1;  // round of `to`
  SlotRecord slot;
};

struct Warning {
  std::string message;
  WarningCode code = WarningCode::other;
  std::string agent{}, turn{};  // whose turn it is about; empty: the run
};

struct RunFinished {
  RunRecord record;
};

/// A long prompt is being computed. Comes a few times a second between AgentStarted and Prefill.
struct PrefillProgress {
  std::string agent;
  int round = 1;
  std::int64_t tokens = 0, prompt_tokens = 0;  // those whose KV is in the cache, computed or reused, and all
};

/// Method verified: a token that is not checked yet. The answer comes later, from its first token on, as Token; until
/// then a host may show tentative text, or ignore it.
struct TentativeToken : Token {};

/// A token of the model's thinking, which comes before the tokens of the output.
struct ThinkingToken : Token {};

/// Method verified: the check is over. The first `tokens` of the `tentative` tokens are in the answer.
struct Confirmed {
  std::string agent;
  int round = 1;
  std::int64_t tokens = 0, tentative = 0;
};

/// A step waits for the host (`ask`), or a call of a model does (`calls.approve`); see RunOptions::on_ask.
struct Asked {
  std::string agent;
  int round = 1;
  std::string question;
  std::vector<std::string> choices{};  // the answers that `output` allows; empty: any text
  std::string turn{};                  // as in AgentRecord, and in RunOptions::answers; of a call: "analyst#2/1"
  std::string tool{}, arguments{};     // of a call: what is to be called; the answer is "allow", "deny", "deny: REASON"
                                       // or a JSON object of other arguments
};

/// The host has answered whether a call may be made. In the journal of a recorded run before the call begins.
struct CallDecided {
  std::string agent;
  int round = 1;
  std::string turn;
  int call = 0;
  std::string tool, arguments;
  std::string answer;
};

/// A call of a model begins: the tool runs from now on. ToolCalled has what came of it.
struct CallBegun {
  std::string agent;
  int round = 1;
  std::string turn;
  int call = 0;
  std::string tool, arguments;  // those that the model wrote
};

/// What an earlier run, which was interrupted, did with a call of a model in a turn that had not ended.
struct EarlierCall {
  std::string turn;
  int call = 0;
  std::string tool, arguments;
  std::optional<std::string> answer{};  // the host's
  bool begun = false;                   // the tool may have run
  std::optional<ToolResult> result{};   // of the tool; none for a call that was begun: its outcome is unknown
};

using Event =
    std::variant<RunStarted, AgentStarted, Prefill, Token, ToolCalled, AgentFinished, Relayed, Warning, RunFinished,
                 PrefillProgress, TentativeToken, Confirmed, Asked, ThinkingToken, CallDecided, CallBegun>;

/// Called in order on a thread of the SDK, one call at a time for a run. It must return soon and must not throw.
using EventCallback = std::function<void(const Event&)>;

/// Returns one line of JSON with a "type" field in snake_case ("agent_started"). If given, `t_ms`, the time since the
/// run started in milliseconds, is the last field.
std::string to_json(const Event& event, std::optional<double> t_ms = {});

}  // namespace baton
