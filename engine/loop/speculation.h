// SPDX-License-Identifier: Apache-2.0
// Drafts: tokens that probably come next run in the same step as the token before them, and those that the sequence
// then chooses itself are kept. The answer is the same, token for token, since a row's result does not depend on the
// rows of its step. A draft consists of the tokens that followed an earlier occurrence of the last ones: agents repeat
// one another. docs/methods.md, "Drafts"; the idea is prompt lookup decoding, a speculative decoding without a second
// model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/text/tokenizer.h"

namespace baton {

struct Draft {
  std::span<const TokenId> tokens;  // may come next; empty: no earlier occurrence of the last tokens
  std::int32_t match = 0;           // number of last tokens that occurred before, in the longest match
};

/// Maximum decode rows of a step with drafts; drafts of forced answers do not count.
constexpr std::int32_t kMaxDraftRows = 36;

/// Maximum tokens per step of a draft that runs whole: a forced answer, or a tentative answer that is checked.
constexpr std::int32_t kMaxWholeDraft = 32;

/// Maximum tokens of a draft if the model has recurrent layers: the state after each token is kept until it is known
/// that the token stays.
constexpr std::int32_t kMaxStateDraft = 8;

/// Shortest match that makes a draft.
constexpr std::int32_t kMinDraftMatch = 2;

/// Returns up to `max_tokens` tokens that followed the longest earlier occurrence of the last of `tokens`, the latest
/// of equally long ones. The result is a part of `tokens`.
Draft find_draft(std::span<const TokenId> tokens, std::int32_t max_tokens);

/// Chooses how many tokens of a draft to run. It measures how often drafts were right after matches of each length, and
/// how long steps of each number of rows take. Used by the engine's thread only.
class DraftLength {
 public:
  /// `max_rows`: maximum decode rows of a step with drafts.
  explicit DraftLength(std::int32_t max_rows);

  /// The steps that drafts lengthen: `rows` decode rows give `tokens` tokens on average.
  struct Step {
    std::int32_t rows = 0;
    double tokens = 0;
  };

  /// Returns the number of first tokens of the draft that maximises tokens per second, and adds them to `step`.
  /// `row_ms`: time of a row in a step of many rows; 0: not measured. Returns 0 until some steps have been measured.
  std::int32_t choose(const Draft& draft, double row_ms, Step& step) const;

  /// Reports whether the first token after a match of this length was as drafted, whether or not the draft ran.
  void on_choice(std::int32_t match, bool right);
  /// Reports the duration of a step with these decode rows and no others.
  void on_step(std::int32_t rows, double milliseconds);

 private:
  static constexpr std::size_t kClasses = 5;  // classes of match lengths: 2, 3 to 4, 5 to 8, 9 to 16 and longer
  static std::size_t class_of(std::int32_t match);
  double milliseconds(std::int32_t rows, double row_ms) const;  // 0: not measured

  std::array<double, kClasses> right_;  // fraction of drafted tokens that were chosen
  std::vector<double> step_ms_;         // [rows]; 0: not measured
};

/// A sequence's answer so far, from which a draft is made.
struct DraftSource {
  std::span<const TokenId> tokens;  // the prompt and the answer so far
  std::span<const TokenId> forced;  // the tokens that the answer consists of; empty: the model chooses
  std::size_t written = 0;          // tokens of the answer so far
  std::int32_t max_tokens = 0;      // maximum tokens of the answer
  bool summed = false;              // attention is recorded: dropped rows would leave traces (KvCache::truncate)
  bool stops = false;               // a stop string may end the answer
};

/// The tokens of one sequence that run before it is known whether they stay: its draft, and its tentative answer, which
/// is written on approximate KV and checked on exact KV (method verified). Used by the engine's thread only.
class Speculation {
 public:
  /// The sequence writes on approximate KV.
  void be_tentative() { tentative_ = true; }
  void be_exact() { tentative_ = false; }
  bool is_tentative() const { return tentative_; }
  /// The tentative answer has ended and waits for its check, which begins when the step is over.
  void end_tentative() { written_ = true; }
  bool is_written() const { return written_; }
  /// Ends the tentative answer. Its tokens are the draft from now on, until all are compared.
  void begin_check(std::vector<TokenId> tentative) noexcept;
  bool is_checking() const { return !check_.empty(); }
  /// Compares the answer so far with the tentative one. Returns the number of tentative tokens that stay once it is
  /// known: at the first token that differs, at the last tentative token, or when the answer is `over`.
  std::optional<std::int64_t> compare(std::span<const TokenId> answer, bool over);

  /// Returns at most `max_tokens` tokens that may come next. For a forced answer and for a check they are certain
  /// (match 0). The result points into the source or into this object.
  Draft find(const DraftSource& source, std::int32_t max_tokens) const;
  /// The first `tokens` tokens of the draft run in the next step.
  void set_draft(const Draft& draft, std::int32_t tokens);
  /// Only the first `tokens` tokens of the draft run in the next step.
  void shorten_draft(std::int32_t tokens) { draft_.resize(static_cast<std::size_t>(tokens)); }
  void drop_draft() { draft_.clear(); }
  std::span<const TokenId> draft() const { return draft_; }
  /// True if the draft is a guess: only then its tokens count as drafted.
  bool is_guess() const { return match_ > 0; }

  /// How a chosen token relates to the draft.
  enum class Chosen : std::uint8_t { other, certain, guessed };
  /// Compares a chosen token with the next one of the draft; `over`: the answer has ended with it. Returns `other` if
  /// it is not the draft's next token or ends the answer; otherwise the logits after it are valid. Reports the choice
  /// to `drafts`.
  Chosen match_token(TokenId chosen, bool over, DraftLength& drafts);
  /// Moves to the next token of the draft if the draft is a choice that is scored. Returns false after the last one.
  bool match_scored();

 private:
  std::vector<TokenId> draft_;       // tokens that run in the same step as the newest one
  std::int32_t drafted_ = 0;         // tokens of the draft that were chosen
  std::int32_t match_ = 0;           // Draft::match for the token that is expected next
  std::optional<TokenId> expected_;  // next token of the draft that was found, whether or not it runs
  bool tentative_ = false;
  bool written_ = false;        // the tentative answer has ended
  std::vector<TokenId> check_;  // tentative tokens whose check is not over
};

}  // namespace baton
