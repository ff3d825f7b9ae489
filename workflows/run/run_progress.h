// SPDX-License-Identifier: Apache-2.0
// The state of a running workflow: the turns and their outputs, and the value of every placeholder computed from them.
// Plain logic, used by one thread; no events, no time.
#pragma once

#include <baton/run_record.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "workflows/format/placeholder.h"
#include "workflows/plan/plan.h"
#include "workflows/run/turn.h"

namespace baton {

/// One turn of the plan as it is run. Once it is over, nothing in it changes and other threads may read it.
struct TurnProgress {
  enum class Phase : std::uint8_t { waiting, running, over };
  Phase phase = Phase::waiting;
  AgentRecord record;
  bool has_output = false;                     // record.output is handed on: generated text or a fallback
  TokenText tokens;                            // the ids that were generated; empty if only the text may be handed on
  std::shared_ptr<const Tokenizer> tokenizer;  // the tokenizer of those ids
  bool has_answer = false;                     // record.answer is what `output` asks for
  std::string probabilities;                   // those of the choices, as JSON
  std::map<std::string, std::string> answers;  // texts of the placeholders for both, of those that the plan reads
  bool has_tool_text = false;
  std::string tool_text;  // output of the turn's tools
  std::string refused;    // of a step that asks: the last answer that did not pass its check, and why; else empty
};

class RunProgress {
 public:
  /// Both must outlive the state.
  RunProgress(const Plan& plan, const std::map<std::string, std::string>& inputs);

  TurnProgress& turn(std::size_t turn) { return turns_[turn]; }
  const TurnProgress& turn(std::size_t turn) const { return turns_[turn]; }
  std::size_t size() const { return turns_.size(); }

  /// Takes what `output` asks for from the output of a turn, which is about to be over. Its record has the
  /// probabilities already, if there are any.
  void set_answer(std::size_t turn, std::string answer);

  /// Whether the condition of a turn, or of the rounds after `round`, holds. An agent without output counts as an empty
  /// text; an answer that there is not is undefined. Throws what a pattern or an expression throws.
  bool may_begin(std::size_t turn) const;
  bool rounds_end(int round) const;

  /// Returns every slot of the turn. An output has ids if `tokenizer` made them.
  std::vector<SlotInput> slot_inputs(std::size_t turn, const Tokenizer& tokenizer) const;
  /// The text of a slot for a tool.
  std::string_view slot_text(std::size_t turn, const std::string& slot) const;
  /// True when the slot's value, or its absence, is final.
  bool known(std::size_t turn, const SlotSource& source) const;
  /// True when a slot stands for another agent's output and that agent has no output.
  bool lacks_output(std::size_t turn, const SlotSource& source) const;

  /// The workflow's outputs from the values known so far; a placeholder without a value is empty. Nothing
  /// if they would have more than 64 MiB.
  std::optional<NamedTexts> outputs() const;

 private:
  enum class Wanted : std::uint8_t { output, tool_text };
  bool has(const TurnProgress& state, Wanted wanted) const {
    return wanted == Wanted::output ? state.has_output : state.has_tool_text;
  }
  const TurnProgress* last(const std::string& agent, std::size_t turn, Wanted wanted) const;
  const TurnProgress* source_turn(std::size_t turn, const SlotSource& source) const;
  std::string_view source_text(std::size_t turn, const SlotSource& source) const;
  const TurnProgress* final_turn(const Placeholder& placeholder) const;
  std::string_view final_text(const std::string& placeholder) const;
  bool matches(const ConditionSpec& condition, const TurnProgress* state) const;
  bool holds(const ConditionSpec& condition, int round,
             const std::function<const TurnProgress*(const std::string& name)>& turn_of) const;
  NamedValue value_of(const Placeholder& placeholder, const TurnProgress* state) const;

  const Plan& plan_;
  const std::map<std::string, std::string>& inputs_;
  std::vector<TurnProgress> turns_;
  using Reads = std::map<std::string, std::map<std::string, Placeholder>>;  // by agent: what the plan reads, by name
  Reads read_answers_, read_probabilities_;
};

}  // namespace baton
