// SPDX-License-Identifier: Apache-2.0
// AnswerWriter: chooses the tokens of a sequence's answer and decodes them to text: sampling, a forced answer, a
// constraint, stop strings, and the scores of given choices (ChoiceScores). AnswerMasks: the token masks of
// constraints.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/loop/speculation.h"
#include "engine/model/model.h"
#include "engine/text/constrain/token_masks.h"
#include "engine/text/tokenizer.h"

namespace baton {

/// The alternative that an answer takes: a given choice, or the next token if a constraint allows only a few.
struct Decision {
  std::size_t best = 0;    // the index of the choice, or the id of the token
  double gap = 0.0;        // log probability of the best minus that of the second best, nats
  std::size_t tokens = 1;  // tokens of the longer one of these two
};

/// The log probabilities of given choices. The choices run after the prompt, one at a time.
class ChoiceScores {
 public:
  /// `choices`: at least one, of at least one token each; `eos`: the ids that end an answer.
  ChoiceScores(std::vector<std::vector<TokenId>> choices, std::vector<TokenId> eos);

  /// False until the logits after the prompt have been taken.
  bool begun() const { return begun_; }
  /// The tokens of the choice that is being scored; take() needs the logits after each of them. Empty when all choices
  /// are scored.
  std::span<const TokenId> running() const;
  /// Number of tokens of running() whose logits have been taken.
  std::size_t run() const { return run_; }

  /// Takes the logits [V] after the prompt, then the logits after each token of running(). Returns true if running()
  /// has changed to another choice or to empty. Throws std::runtime_error if no logit is finite.
  bool take(std::span<const float> logits);

  /// Returns for each choice the product of the probabilities of its tokens, divided by the sum over all choices. If a
  /// longer choice begins with the tokens of a choice, the end of the answer counts as one more token of the shorter
  /// one. All choices must be scored.
  std::vector<double> probabilities() const;
  /// Returns the most probable choice; the first one in case of a tie.
  const std::vector<TokenId>& best() const;
  /// Returns the decision between the choices; nullopt if there is only one. All choices must be scored.
  std::optional<Decision> decision() const;
  /// Drops the scores. Scoring begins again with the logits after the prompt.
  void restart();

 private:
  std::size_t rows(std::size_t choice) const { return choices_[choice].size() - (ends_[choice] ? 0 : 1); }
  void skip_scored();

  std::vector<std::vector<TokenId>> choices_;
  std::vector<TokenId> eos_;
  std::vector<bool> ends_;      // by choice: true if the end of the answer counts as a token
  std::vector<double> scores_;  // by choice: log probability so far
  std::size_t at_ = 0;          // the choice that is being scored
  std::size_t run_ = 0;
  bool begun_ = false;
};

/// Used by the engine's thread only. The request, the result and the model must outlive the object.
class AnswerWriter {
 public:
  /// Moves GenerationRequest::choices out of the request. `masks`: token masks of the request's constraint; null: no
  /// constraint.
  AnswerWriter(GenerationRequest& request, GenerationResult& result, const Model& model,
               std::shared_ptr<TokenMasks> masks);

  /// The initial state of an answer. Making it may throw; restart() with it does not.
  struct Beginning {
    Sampler sampler;
    StreamDecoder decoder;
    StopStrings stops;
    std::optional<ThinkingReader> thinking;
  };
  Beginning beginning() const;
  /// Drops the writer's state of the answer so far. The caller must drop the answer in the result.
  void drop() noexcept;
  /// Begins the answer anew.
  void restart(Beginning beginning) noexcept;

  bool is_forced() const { return !request_.forced.empty(); }
  /// The scores of the request's choices; null if it has no choices, or after end_scores().
  ChoiceScores* scores() { return scores_ ? &*scores_ : nullptr; }
  const ChoiceScores* scores() const { return scores_ ? &*scores_ : nullptr; }
  /// Called when all choices are scored: the answer is forced to be the most probable choice, unless the request forces
  /// an answer itself.
  void end_scores();

  /// True if only the choice of the next token needs the logits. The backend can then choose, and the logits may stay
  /// on the device.
  bool chooses_alone() const;
  /// Returns the parameters for choosing the next token, or the one `ahead` tokens later.
  TokenChoice choice(std::int32_t ahead = 0) const;
  /// Returns the entropy of the distribution before constraint and sampling, if entropy is recorded; otherwise 0.
  float entropy_behind(std::span<const float> logits) const;
  /// Returns the decision that the next token makes, given its logits [V]. Returns nullopt unless the token is the most
  /// probable one of at most kFewTokens that the constraint allows. Tokens that begin the same text are one
  /// alternative.
  std::optional<Decision> decision(std::span<const float> logits);
  static constexpr std::size_t kFewTokens = 64;
  /// True if both values of Decision::best are the same alternative.
  bool agree(std::size_t best, std::size_t other) const;
  /// Chooses the next token from its logits [V]. `scratch`: as in Sampler::choose. Throws if no token is possible.
  ChosenToken choose(std::span<const float> logits, std::span<const TokenId> tokens, float entropy,
                     std::vector<float>& scratch);
  /// Returns the draft up to the first token that the constraint does not allow.
  Draft allowed_part(Draft draft) const;

  /// Appends a chosen token to the result, and to `tokens`. Returns true if the answer has ended.
  bool append(const ChosenToken& chosen, std::vector<TokenId>& tokens, bool tentative, Clock::time_point submitted);
  /// Completes the answer in the result.
  void finish();
  /// Why append() has ended the answer.
  FinishReason reason() const { return reason_; }
  /// Entropy of the distribution of each output token, if the output becomes a segment; may hold one more value.
  const std::vector<float>& entropy() const { return entropy_; }

 private:
  bool is_constrained() const { return matcher_ && !is_forced(); }
  std::string certain_text(const std::string& text) { return thinking_ ? thinking_->push(text) : stops_.push(text); }

  GenerationRequest& request_;
  GenerationResult& result_;
  const Tokenizer& tokenizer_;
  const ModelConfig& config_;
  Sampler sampler_;
  std::optional<AnswerMatcher> matcher_;  // for the request's constraint
  StreamDecoder decoder_;
  StopStrings stops_;
  std::optional<ThinkingReader> thinking_;  // set if the answer consists of thinking only
  std::optional<ChoiceScores> scores_;
  std::vector<std::size_t> text_length_;  // decoded bytes after each output token
  std::vector<float> entropy_;
  FinishReason reason_ = FinishReason::eos;
  Clock::time_point first_token_{};
};

/// The token masks of the constraints that requests have, shared by requests with the same constraint.
class AnswerMasks {
 public:
  explicit AnswerMasks(const Model& model) : model_(model) {}

  /// Reads the vocabulary once for all threads; this takes about 0.1 s. Throws as MaskVocabulary does; the next call
  /// then starts again. Any thread may call it.
  std::shared_ptr<const MaskVocabulary> vocabulary(const std::stop_token& stop = {});

  /// Returns the masks of a constraint; null for null. Any thread may call it, but only the engine's thread may use the
  /// result. Throws as `vocabulary` does, unless the vocabulary has been read.
  std::shared_ptr<TokenMasks> of(const std::shared_ptr<const Grammar>& constraint);

 private:
  struct Known {
    std::shared_ptr<const Grammar> constraint;
    std::shared_ptr<TokenMasks> masks;
  };

  const Model& model_;
  std::mutex mutex_;  // not held while the vocabulary is read
  std::condition_variable_any read_;
  bool reading_ = false;                              // guarded by mutex_: one thread reads the vocabulary
  std::shared_ptr<const MaskVocabulary> vocabulary_;  // guarded by mutex_; null until a request has a constraint
  std::list<Known> known_;                            // guarded by mutex_; the latest first
};

}  // namespace baton
