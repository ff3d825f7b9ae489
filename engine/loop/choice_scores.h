// SPDX-License-Identifier: Apache-2.0
// Choosing one of a few given answers by the model's probabilities of them. Each answer runs once behind the prompt, so
// that the logits in front of each of its tokens are known, and its rows are dropped again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/text/tokenizer.h"

namespace baton {

class ChoiceScores {
 public:
  /// `choices`: at least one, of at least one token each; `eos`: the ids that end an answer.
  ChoiceScores(std::vector<std::vector<TokenId>> choices, std::vector<TokenId> eos);

  /// False until the logits behind the prompt were taken.
  bool begun() const { return begun_; }
  /// Tokens of the choice that is scored, all of whose logits are needed; empty when every choice is scored.
  std::span<const TokenId> running() const;
  /// How many of running() have run.
  std::size_t run() const { return run_; }

  /// Takes the logits [V] behind the prompt, and then those behind each token of running(). Returns true when running()
  /// is another choice, or empty, from now on. Throws std::runtime_error when no logit is finite.
  bool take(std::span<const float> logits);

  /// By choice: the product of the probabilities of its tokens, divided by the sum over all choices. The end of an
  /// answer counts as a token of those choices with whose tokens a longer choice begins. All choices must be scored.
  std::vector<double> probabilities() const;
  /// The most probable choice, the first of several.
  const std::vector<TokenId>& best() const;

 private:
  std::size_t rows(std::size_t choice) const { return choices_[choice].size() - (ends_[choice] ? 0 : 1); }
  void skip_scored();

  std::vector<std::vector<TokenId>> choices_;
  std::vector<TokenId> eos_;
  std::vector<bool> ends_;      // by choice: its end counts
  std::vector<double> scores_;  // by choice: log probability so far
  std::size_t at_ = 0;          // the choice that is scored
  std::size_t run_ = 0;
  bool begun_ = false;
};

}  // namespace baton
