// SPDX-License-Identifier: Apache-2.0
// EarlyTurns: the prompts of waiting turns. As soon as the beginning of such a prompt is known, its engine computes it
// ahead, and mirrors the turns that decode the next part of the prompt (engine/loop/prefill_ahead.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>
#include <vector>

#include "workflows/run/run_progress.h"

namespace baton {

/// The run's thread only. It does not affect exactness: KV computed ahead is used only as far as its tokens equal those
/// of the final prompt.
class EarlyTurns {
 public:
  /// All must outlive it.
  EarlyTurns(const Plan& plan, const RunProgress& state, TextIds& texts);

  /// True when the turn's prompt may be computed ahead: the method is lockstep, and the turn is sure to run but for
  /// failures and the end of the rounds.
  bool wants(std::size_t turn) const;

  /// Adds the frame of the turn's prompt and the turn's engine. `memory`: what the agent remembers, or null;
  /// `remembers`: its answer will be remembered.
  void add(std::size_t turn, PromptFrame frame, std::shared_ptr<InferenceEngine> engine, const Conversation* memory,
           bool remembers);
  PromptFrame frame(std::size_t turn) const { return turns_[turn].frame; }

  /// A request decodes the turn's answer.
  void began(std::size_t turn, const InferenceEngine* engine, RequestId request);
  /// The request no longer decodes the turn's answer.
  void ended(std::size_t turn);
  /// The turn is over, or its request is about to be submitted. Returns the id of the prompt computed ahead for it, or
  /// 0.
  EarlyId take(std::size_t turn);
  /// The turn is over: its output, or the absence of one, is known.
  void over(std::size_t turn);

  /// No waiting turn will start: the run is ending.
  void stop();
  /// Stops building frames when the run is ending. Any thread.
  std::stop_token token() const { return stop_.get_token(); }

 private:
  struct Turn {
    PromptFrame frame;
    std::shared_ptr<InferenceEngine> engine;
    EarlyId id = 0;
    bool remembers = false;
    ContextHandle context;     // the conversation that the frame begins with; null: none
    std::int32_t longest = 0;  // longest prompt that the engine was told of
    bool done = false;         // submitted, or over
    const InferenceEngine* decoding = nullptr;
    RequestId request = 0;
  };

  void refresh(std::size_t turn);
  void tell(std::size_t turn);
  void refresh_readers(std::size_t turn);
  bool is_near(const PlannedTurn& turn) const;
  std::optional<TokenText> ids_of(const SlotInput& value, PieceStart start,
                                  const std::shared_ptr<const Tokenizer>& tokenizer);

  const Plan& plan_;
  const RunProgress& state_;
  std::vector<Turn> turns_;  // one of each of the plan
  TextIds& texts_;
  std::stop_source stop_;
  std::map<std::tuple<const char*, const Tokenizer*, PieceStart>, TokenText> ids_;  // ids of known texts
};

/// The frame of a turn's prompt, the run's inputs filled in. `memory`: what the agent remembers, or null. Any thread.
/// Throws ModelError, and Interrupted soon after a stop was requested.
PromptFrame make_frame(const PlannedTurn& turn, const ModelText& model,
                       const std::map<std::string, std::string>& inputs, const Conversation* memory,
                       const std::stop_token& stop, TextIds* texts = nullptr);

}  // namespace baton
