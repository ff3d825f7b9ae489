// SPDX-License-Identifier: Apache-2.0
// One turn of an agent before its prompt goes to the engine: tools run, values become token ids, the prompt is built.
#pragma once

#include <baton/event.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "agents/prompts/conversation.h"
#include "agents/tools/tool.h"
#include "engine/base/clock.h"
#include "engine/engine.h"
#include "workflows/plan/plan.h"
#include "workflows/run/turn_thinking.h"

namespace baton {

/// The value of a slot. The text and the ids belong to a turn that is over, or to the run's inputs.
struct SlotInput {
  std::string name;
  std::string_view text;
  TokenText tokens;        // the ids that stand for the text in this model; none: encode the text
  bool own_tools = false;  // the result of this turn's tools, known only once they ran
  bool of_tools = false;   // the result of some turn's tools
};

struct ToolInput {
  const Tool* tool = nullptr;  // null: not registered
  std::string name;
  ToolCall call;
  std::string refused;                // why it may not be called
  std::shared_ptr<const Tool> own{};  // keeps `tool` alive, if it was made for this call
};

/// Makes `tool` one that asks the host, on a worker, as a tool is called. `answer`: given in advance; null: none, and
/// `on_ask` is called, if there is one. Both must outlive the call. It throws NoAnswer if the host has no answer yet.
void ask_host(ToolInput& tool, Asked asked,
              const std::function<std::optional<std::string>(const Asked& asked, const std::stop_token& stop)>& on_ask,
              const std::string* answer);

/// The text of a tool's option with the values of its placeholders. Throws std::runtime_error beyond 16 MiB, and where
/// a value names a secret: the tool, which resolves such names in its options, could not tell who wrote it.
std::string filled_option(const std::string& option, const PromptItem& text,
                          const std::function<std::string_view(const std::string& placeholder)>& value);

/// The prompt of a turn before its last inputs are known (agents/prompt.h), with the values of the run's inputs.
using PromptFrame = std::shared_ptr<const std::vector<FramePart>>;

/// The frame of a turn whose agent remembers `memory`, or nothing (null), as far as the turn is to remember it.
std::vector<FramePart> frame_of(const ModelText& model, const PlannedTurn& turn,
                                const std::vector<PromptMessage>& messages, const Conversation* memory,
                                const std::stop_token& stop, TextIds* texts);

/// The text side of a model for a turn: with the variables that the turn sets for its chat template, and the time that
/// the template shows as now (ChatOptions::local_seconds).
ModelText text_for(const ModelText& model, const PlannedTurn& turn, std::optional<std::int64_t> local_seconds);

struct TurnInput {
  const PlannedTurn* turn = nullptr;
  std::shared_ptr<InferenceEngine> engine;     // null if the turn has no prompt
  std::optional<std::int64_t> local_seconds;   // for text_for
  PromptFrame frame;                           // null: it is built first
  std::vector<PromptMessage> messages;         // without a frame; empty: the turn's own
  std::vector<SlotInput> slots;                // every slot of the turn
  std::shared_ptr<const Conversation> memory;  // what the agent remembers; null: nothing
  std::vector<ToolInput> tools;
  std::string tool_text;           // without `tools`: what they returned in an attempt before
  std::shared_ptr<TextIds> texts;  // the run's
  std::stop_token stop;            // stops rendering, tokenizing and reading the vocabulary; the tools have it, too
};

struct ToolOutcome {
  std::string tool;
  std::string arguments;  // arguments of a call by the model, or the question of a step that asks
  ToolResult result;
  double wall_ms = 0.0;
  std::optional<std::string> summary{};  // what the model gets in place of the result; empty: there is none
};

/// Thrown by the tool of a step that asks if the host has no answer yet.
class NoAnswer {};

struct PreparedTurn {
  std::vector<ToolOutcome> tools;
  std::string tool_text;      // the results joined by newlines: condition_<agent>_current
  Clock::time_point ready{};  // when the last input was complete: after the tools
  std::vector<PromptPart> prompt;
  AnswerStart start;                             // how the answer behind the prompt begins
  std::size_t kept = 0;                          // exchanges of the memory that the prompt holds
  std::vector<std::vector<TokenId>> choices;     // ids of the turn's choices
  ToolFormat format;                             // the form of calls, if the model may call tools
  std::shared_ptr<const Grammar> constraint;     // what may be generated next; null: any text
  bool waits = false;                            // a tool threw NoAnswer; it is not in `tools`
  std::string failed_tool;                       // what a tool said that ended the attempt (CallLimits::fail)
  std::vector<std::int64_t> left_out;            // bytes of each of the tools' results that the model does not get
  std::vector<std::vector<PromptPart>> shorter;  // what takes the places of the oldest results of the turn
  std::vector<Warning> warnings;                 // of what did not fit; the caller adds whose they are
  std::optional<std::size_t> to_summarise;       // a result that has to be summarised first
  std::vector<PromptPart> summary_prompt;
  std::string error;       // why there is no prompt
  bool may_retry = false;  // another attempt may have no such error
};

/// Takes as long as the tools do. Never throws: what fails is in `error`, a tool only without
/// PlannedTurn::tells_errors.
PreparedTurn prepare_turn(const TurnInput& input);

/// The results of an earlier output's calls, in the prompt.
struct EarlierResults {
  std::vector<std::string> tools;
  PieceStart start;
  std::size_t tokens = 0;  // ids
};

/// The calls that a model wrote in place of an answer; the first `left` of them are run.
struct CallsInput {
  const PlannedTurn* turn = nullptr;
  std::shared_ptr<InferenceEngine> engine;
  std::shared_ptr<InferenceEngine> summary_engine;             // of PlannedTurn::summary; null: `engine`
  const std::map<std::string, std::string>* inputs = nullptr;  // the run's, for its system messages
  std::optional<std::int64_t> local_seconds;                   // for text_for
  ToolFormat format;
  std::vector<ModelCall> calls;
  std::vector<ToolInput> tools;                  // one for each call
  std::vector<std::optional<ToolResult>> known;  // results of calls that were made before and are not made again
  int left = 0;                                  // calls that the turn may still make
  std::size_t used = 0;                          // ids of the prompt and the calls
  std::vector<EarlierResults> earlier;           // that may be left out, the oldest first
  PieceStart start;                              // of a text behind the calls
  std::shared_ptr<TextIds> texts;                // the run's
  std::stop_token stop;

  InferenceEngine& summarising_engine() const { return summary_engine ? *summary_engine : *engine; }

  /// All calls were made before.
  bool goes_in_circles() const {
    return std::all_of(known.begin(), known.end(), [](const auto& result) { return result.has_value(); });
  }
};

/// Runs a tool that a model calls: the only one of the result's `tools`. Never throws.
PreparedTurn run_call(const ToolInput& input);

struct ResultsInput {
  CallsInput calls;
  std::vector<ToolOutcome> outcomes;  // one for each call
  int left = 0;                       // calls that the turn may still make
};
/// `prompt` of the result is what follows the calls. Never throws. If all calls were made before, no more are allowed.
PreparedTurn after_results(const ResultsInput& input);

/// Why a tool that failed ends an attempt (CallLimits::fail).
std::string failure_of(const ToolOutcome& outcome);

/// An output that did not pass its check.
struct FailedOutput {
  std::string text;
  std::string problem;
};

/// The messages of a further attempt: `retry.feedback` stands behind the last message, once for each failed output,
/// with the output and the problem as data, the latter cut to 1000 bytes. So no attempt has the prompt of another, and
/// what stands before is there as KV.
std::vector<PromptMessage> messages_after(const PlannedTurn& turn, const std::vector<FailedOutput>& failed);

}  // namespace baton
