// SPDX-License-Identifier: Apache-2.0
// EarlyTurns: the prompts of the turns that wait. As soon as the beginning of one is known, its engine computes it
// ahead, and follows the turns that decode what comes next in it (engine/steps/prefill_ahead.h).
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "workflows/run/run_progress.h"

namespace baton {

/// The run's thread only. Exactness does not depend on it: what the engine computed ahead is used as far as the tokens
/// are those of the prompt that comes in the end.
class EarlyTurns {
 public:
  /// Both must outlive it.
  EarlyTurns(const Plan& plan, const RunProgress& state);

  /// True when the turn's prompt may be computed ahead: the method is lockstep, and the turn is sure to run but for
  /// failures and the end of the rounds.
  bool wants(std::size_t turn) const;

  /// The turn's frame is there, and its engine.
  void add(std::size_t turn, PromptFrame frame, std::shared_ptr<InferenceEngine> engine);
  PromptFrame frame(std::size_t turn) const { return turns_[turn].frame; }

  /// A request decodes the turn's answer.
  void began(std::size_t turn, const InferenceEngine* engine, RequestId request);
  /// It does so no more.
  void ended(std::size_t turn);
  /// The turn is over, or its request is about to be submitted: what was computed ahead for it, or 0.
  EarlyId take(std::size_t turn);
  /// The turn is over: its output, or that there is none, is known.
  void over(std::size_t turn);

  /// Nothing that waits will begin.
  void stop();

 private:
  struct Turn {
    PromptFrame frame;
    std::shared_ptr<InferenceEngine> engine;
    EarlyId id = 0;
    std::int32_t longest = 0;  // that the engine was told
    bool done = false;         // submitted, or over
    const InferenceEngine* decoding = nullptr;
    RequestId request = 0;
  };

  void refresh(std::size_t turn);
  void tell(std::size_t turn);
  void refresh_readers(std::size_t turn);
  bool is_near(const PlannedTurn& turn) const;
  const std::vector<TokenId>* ids_of(const SlotInput& value, const Tokenizer& tokenizer);

  const Plan& plan_;
  const RunProgress& state_;
  std::vector<Turn> turns_;                                                       // one of each of the plan
  std::map<std::pair<const char*, const Tokenizer*>, std::vector<TokenId>> ids_;  // of texts that are known
};

/// The frame of a turn's prompt, the run's inputs filled in. Any thread. Throws ModelError.
PromptFrame make_frame(const PlannedTurn& turn, const ModelText& model,
                       const std::map<std::string, std::string>& inputs);

}  // namespace baton
