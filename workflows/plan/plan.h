// SPDX-License-Identifier: Apache-2.0
// Plan: the expanded graph. Prompts are messages of pieces whose slots are resolved.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agents/prompts/prompt.h"
#include "engine/text/constrain/grammar.h"
#include "workflows/format/output.h"
#include "workflows/format/spec.h"

namespace baton {

/// Where a slot's value comes from.
struct SlotSource {
  enum class Kind : std::uint8_t { input, agent_output, agent_answer, tool_result, empty, agent_thinking };
  std::string name;                       // as the prompt names it: "agent_analyst_current"
  Kind kind = Kind::empty;                // empty: a history that reaches back before the first round
  int turn = -1;                          // index into Plan::turns: whose output or answer, or whose tools ran
  const Method* method = &full_method();  // the method that is forecast
  std::string reason;

  /// A member of an answer, or its probabilities: never the output.
  bool is_member() const;
};

/// The maximum of a summary (Overflow::summarise), but for an agent with a limit of its own.
inline constexpr std::int32_t kSummaryTokens = 160;

struct PlannedTurn {
  std::string id;  // "analyst", in later rounds "analyst#2"
  std::string agent;
  int round = 1;
  std::vector<int> needs;  // turns that must be over first, ascending; always smaller than its own index
  /// Loops expanded; slots by name; none: what the tools return is the output. One without a role is a slot that stands
  /// for the messages of an input, until a run knows them.
  std::vector<PromptMessage> messages;
  bool of_host = false;           // some of the messages come with a run (with_messages)
  std::vector<SlotSource> slots;  // each slot of the messages once, in order of appearance; then those only tools read
  std::vector<ToolSpec> tools;    // run before the prompt is built
  std::shared_ptr<const CallableTools> calls;  // what the model may call; null: nothing
  std::optional<ConditionSpec> when;
  std::vector<SlotSource> when_reads;  // what its expression names, but inputs and `round`
  std::string fallback;
  RetrySpec retry;
  std::string model;  // name of a ModelSpec; empty if there is no prompt
  std::vector<std::pair<std::string, std::string>> template_variables;  // of the chat template; ChatOptions::variables
  SamplingParams sampling;
  std::int32_t max_tokens = 256;
  std::vector<std::string> stop;
  std::shared_ptr<const Grammar> grammar;  // the output's; null: none, or a pattern or schema that is only checked
  std::vector<std::string> choices;        // the output is the most probable of them; none: it is decoded
  Milliseconds timeout{0};                 // 0: none
  bool served = false;                     // the model is on a server, which keeps its KV
  bool enforce = false;                    // the grammar is obeyed while decoding
  std::vector<std::string> unenforced;     // what the output and calls are not held to then: it is checked behind
  bool decides = false;                    // the `then` agent
  bool exact = false;                      // nothing is handed over approximately
  Overflow overflow = Overflow::cut_result;
  /// Who writes the summaries of Overflow::summarise: an agent with its system messages, or (`agent` is empty) a model.
  /// Null: the model of the turn.
  std::shared_ptr<const PlannedTurn> summary;
  OnError on_error = OnError::fail;
  OnEmpty on_empty = OnEmpty::warn;
  bool tells_errors = false;         // AgentSpec::tells_errors
  std::string unread;                // why nothing reads its output, though it looks as if it were read; else empty
  std::optional<int> remember;       // AgentSpec::remember
  ThinkSpec think;                   // with what `defaults` say
  std::vector<std::string> written;  // slots of the messages as the file has them, if their order was changed
  std::string order;                 // what the changed order saves

  const SlotSource* slot(const std::string& name) const;
  bool has_prompt() const { return !messages.empty(); }
  /// Whether the output is what a model writes, and not what its tools, or the tools that it calls, return.
  bool is_written() const { return has_prompt() && !(calls && calls->limits().direct); }
  bool asks() const { return !tools.empty() && tools.front().tool == kAskTool; }
};

struct Plan {
  std::shared_ptr<const WorkflowSpec> spec;
  std::vector<PlannedTurn> turns;  // a topological order
  std::string relay;               // name of the method
  ReuseOptions reuse;              // the method's parameters for the engine
  /// droidspeak: by the models of an author and of its reader, the last layer of the group that the reader recomputes,
  /// then those of larger groups. All begin at reuse.range.start. Empty: reuse.range is the group of every reader.
  std::map<std::pair<std::string, std::string>, std::vector<std::int32_t>> larger_ends;
  int rounds = 1;
  int last_turn_of(const std::string& agent, int round) const;  // -1: none
  ReuseOptions reuse_of(const PlannedTurn& turn) const;         // the options of the turn's request
};

/// The slots of a turn, which must not change in the meantime, for many look-ups.
std::unordered_map<std::string_view, const SlotSource*> slots_by_name(const PlannedTurn& turn);

/// True when the turn has a slot with the value of `source`, under whatever name.
bool shows_source(const PlannedTurn& turn, const SlotSource& source);

/// The plan of turns that were checked (workflows/compile.h), with the forecast of what becomes of each placeholder.
Plan make_plan(std::shared_ptr<const WorkflowSpec> spec, std::vector<PlannedTurn> turns);

/// Forms of the expanded graph: ascii, mermaid, dot, json. Throws std::invalid_argument for another.
std::string format_graph(const Plan& plan, const std::string& format);

/// All turns of all rounds and the decision. With errors the result is of no use.
std::vector<PlannedTurn> build_turns(const WorkflowSpec& spec, OutputGrammars& grammars, Diagnostics& diagnostics);

}  // namespace baton
