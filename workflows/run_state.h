// What a run knows while it goes on: the turns and their outputs, and from these the value of every placeholder.
// Plain logic, used by one thread; no events, no time.
#pragma once

#include <baton/run_record.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "workflows/plan.h"
#include "workflows/turn.h"

namespace baton {

/// One step of the plan as it is run. Once it is over, nothing in it changes and other threads may read it.
struct Turn {
  enum class State : std::uint8_t { waiting, running, over };
  State state = State::waiting;
  AgentRecord record;
  bool has_output = false;              // record.output goes downstream: generated text or a fallback
  std::vector<TokenId> tokens;          // the ids that were generated; empty where only text may move on
  std::shared_ptr<const Tokenizer> tokenizer;  // of those ids
  bool has_tool_text = false;
  std::string tool_text;
};

class RunState {
 public:
  /// Both must outlive the state.
  RunState(const Plan& plan, const std::map<std::string, std::string>& inputs);

  Turn& turn(std::size_t step) { return turns_[step]; }
  const Turn& turn(std::size_t step) const { return turns_[step]; }
  std::size_t size() const { return turns_.size(); }

  bool needs_over(std::size_t step) const;
  bool round_over(int round) const;
  bool all_over() const;

  /// The last output of an agent among the steps before `before`, or null.
  const Turn* last_output(const std::string& agent, std::size_t before) const;
  /// False for no condition; an agent without output counts as an empty text. Throws what a pattern throws.
  bool holds(const ConditionSpec& condition, std::size_t before) const;

  /// The turn whose output fills a slot: of a deciding step the last one there is, otherwise the one planned. Null: none.
  const Turn* output_for(std::size_t step, const SlotSource& source) const;
  std::vector<SlotInput> slot_inputs(std::size_t step, const Tokenizer& tokenizer) const;

  /// The text of a placeholder for the tools of a step, and for the outputs (step = size()). Empty when it has none.
  std::string_view text_of(const std::string& placeholder, std::size_t step) const;
  std::map<std::string, std::string> outputs() const;

 private:
  const Turn* tool_turn_for(std::size_t step, const SlotSource& source) const;
  SlotInput slot_input(std::size_t step, const SlotSource& source, const Tokenizer& tokenizer) const;

  const Plan& plan_;
  const std::map<std::string, std::string>& inputs_;
  std::vector<Turn> turns_;
};

}  // namespace baton
