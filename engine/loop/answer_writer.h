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

/// Which of few alternatives an answer takes: a given choice, or the next token where a constraint leaves only a few.
struct Decision {
  std::size_t best = 0;    // the index of the choice, or the id of the token
  double gap = 0.0;        // by how much the best is more probable than the next one, nats
  std::size_t tokens = 1;  // of the longer of both
};

/// The log probabilities of given choices, each of which runs behind the prompt, one after another.
class ChoiceScores {
 public:
  /// `choices`: at least one, of at least one token each; `eos`: the ids that end an answer.
  ChoiceScores(std::vector<std::vector<TokenId>> choices, std::vector<TokenId> eos);

  /// False until the logits behind the prompt have been taken.
  bool begun() const { return begun_; }
  /// The tokens of the choice that is being scored: the logits behind each of them are needed. Empty when all choices
  /// are scored.
  std::span<const TokenId> running() const;
  /// Number of tokens of running() behind which the logits have been taken.
  std::size_t run() const { return run_; }

  /// Takes the logits [V] behind the prompt, and then those behind each token of running(). Returns true when running()
  /// is another choice, or empty, from now on. Throws std::runtime_error when no logit is finite.
  bool take(std::span<const float> logits);

  /// Returns for each choice the product of the probabilities of its tokens, divided by the sum over all choices. If a
  /// longer choice begins with the tokens of a choice, the end of the answer counts as one more token of the shorter
  /// one. All choices must be scored.
  std::vector<double> probabilities() const;
  /// Returns the most probable choice; of equally probable ones, the first.
  const std::vector<TokenId>& best() const;
  /// How the choice is decided; nothing if there is only one. All choices must be scored.
  std::optional<Decision> decision() const;
  /// Drops the scores. The logits behind the prompt come again.
  void restart();

 private:
  std::size_t rows(std::size_t choice) const { return choices_[choice].size() - (ends_[choice] ? 0 : 1); }
  void skip_scored();

  std::vector<std::vector<TokenId>> choices_;
  std::vector<TokenId> eos_;
  std::vector<bool> ends_;      // by choice: its end counts
  std::vector<double> scores_;  // by choice: log probability so far
  std::size_t at_ = 0;          // the choice that is being scored
  std::size_t run_ = 0;
  bool begun_ = false;
};

/// Used by the engine's thread only. The request, the result and the model must outlive the object.
class AnswerWriter {
 public:
  /// Moves GenerationRequest::choices out of the request. `masks`: those of the request's constraint; null: it has
  /// none.
  AnswerWriter(GenerationRequest& request, GenerationResult& result, const Model& model,
               std::shared_ptr<TokenMasks> masks);

  /// What an answer begins with. Making it may throw, beginning with it does not.
  struct Beginning {
    Sampler sampler;
    StreamDecoder decoder;
    StopStrings stops;
    std::optional<ThinkingReader> thinking;
  };
  Beginning beginning() const;
  /// Drops what was written. The answer in the result is the caller's.
  void drop() noexcept;
  /// Begins the answer anew.
  void restart(Beginning beginning) noexcept;

  bool is_forced() const { return !request_.forced.empty(); }
  /// The scores of the request's choices; null when it has none, and when all are scored.
  ChoiceScores* scores() { return scores_ ? &*scores_ : nullptr; }
  const ChoiceScores* scores() const { return scores_ ? &*scores_ : nullptr; }
  /// Called when all choices are scored: the answer is forced to be the most probable choice, unless the request forces
  /// an answer itself.
  void end_scores();

  /// True when nothing but the choice of the next token needs the logits, so that the backend can choose and they may
  /// stay on the device.
  bool chooses_alone() const;
  /// The parameters of the next token's choice, or of the one `ahead` tokens later.
  TokenChoice choice(std::int32_t ahead = 0) const;
  /// Returns the entropy of the distribution if it is recorded, else 0. It is taken before a constraint and sampling:
  /// how unsure the model was by itself.
  float entropy_behind(std::span<const float> logits) const;
  /// What the next token, with these logits [V], decides; nothing unless it is the most probable one of at most
  /// kFewTokens that the constraint allows. Tokens that begin the same text are one alternative.
  std::optional<Decision> decision(std::span<const float> logits);
  static constexpr std::size_t kFewTokens = 64;
  /// True if these are one alternative; see Decision::best.
  bool agree(std::size_t best, std::size_t other) const;
  /// Chooses the next token from its logits [V], which are overwritten. Throws when no token is possible.
  ChosenToken choose(std::span<float> logits, std::span<const TokenId> tokens, float entropy);
  /// Returns the first tokens of the draft that the constraint allows.
  Draft allowed_part(Draft draft) const;

  /// Appends a chosen token to the result, and to `tokens`. Returns true when the answer has ended.
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
  std::optional<AnswerMatcher> matcher_;  // of the request's constraint
  StreamDecoder decoder_;
  StopStrings stops_;
  std::optional<ThinkingReader> thinking_;  // set if the answer is thinking alone
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

  /// Reads the vocabulary, once for all threads, which takes about a tenth of a second. Throws as MaskVocabulary does;
  /// the next call then begins anew. May be called by any thread.
  std::shared_ptr<const MaskVocabulary> vocabulary(const std::stop_token& stop = {});

  /// Returns the masks of a constraint; null for null. May be called by any thread, but only the engine's thread may
  /// use the result. Throws as `vocabulary` does, unless the vocabulary has been read.
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
